"""The report of a run: one HTML file that needs no network and no script.

``words`` says what the numbers say and nothing more, ``charts`` draws static SVG, ``examples`` picks the
pairs behind a cell, ``page`` puts everything into ``report.html.j2``.
"""
