"""Parametric 3D heads: from a group and a seed to a picture, without torch.

``identity`` samples a person, ``variation`` a photograph of that person, ``attributes`` changes one thing
about the look, ``scene`` turns the three into surfaces, ``renderer`` into encoded bytes. Lengths are in
interocular distances (the distance between the two eye centres) unless said otherwise; x points to the
head's left, y up, z out of the face, and the origin lies midway between the eyes.
"""
