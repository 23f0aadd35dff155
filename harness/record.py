"""The versioned result of an audit: strict JSON, every number whole, every undefined value a status.

``reasons`` of a part says for each of its fields that is null why it is (``harness.reasons``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Never

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from harness.consistency import contradictions, faulty_numbers
from harness.recognition_record import Recognition
from targets.base.errors import InputError
from targets.base.files import read_regular, write_json
from targets.base.strict_json import parse_json
from targets.card import TargetCard

SCHEMA_VERSION: Literal["facedelta.audit/1"] = "facedelta.audit/1"
RECORD_FILE = "record.json"

Status = Literal["ok", "zero_variance", "undefined"]
Availability = Literal["ok", "not_available"]
Probability = Annotated[FiniteFloat, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Interval(_Part):
    """A confidence interval; ``level`` in (0, 1).

    ``method`` as in ``--ci``, "equal weights" or "satterthwaite"; for skewed cells it says how bounds were
    widened (``harness.stats.hall``), and the interval is not symmetric.
    """

    low: FiniteFloat
    high: FiniteFloat
    level: Probability
    method: str


class Cell(_Part):
    """Mean change of one concept for one attribute and group.

    Attributes:
        target: spec of the target.
        by: axis of the groups ("demographic", "ethnicity", "sex").
        attribute, concept, group: what was changed, what was asked, for whom.
        n_pairs, n_identities: pairs with two scores, and identities among them.
        missing: of a coarser axis, the demographic groups without such a pair, which its mean leaves out.
        mean_source, mean_transformed, delta: means over those pairs; delta is transformed minus source.
        se, df: standard error and its degrees of freedom.
        ci: interval of delta.
        p, p_adjusted: of delta = 0, unadjusted and adjusted within ``family``.
        family: id of the family of tests, listed in the record.
        status: "ok", "zero_variance" or "undefined"; a value that is undefined is null.
        reason: why the status is not "ok", as a sentence.
        flags: cautions that every table shows.
        excluded: reason -> pairs left out.
    """

    target: str
    by: str
    attribute: str
    concept: str
    group: str
    n_pairs: Count
    n_identities: Count
    mean_source: FiniteFloat | None
    mean_transformed: FiniteFloat | None
    delta: FiniteFloat | None
    se: FiniteFloat | None
    df: FiniteFloat | None
    ci: Interval | None
    p: Probability | None
    p_adjusted: Probability | None
    family: str | None
    status: Status
    reason: str = ""
    flags: tuple[str, ...]
    missing: tuple[str, ...] = ()
    excluded: dict[str, Count]
    reasons: dict[str, str] = {}


class Band(_Part):
    """A band that holds simultaneously for all pairs of ``groups`` groups (Games-Howell on CR2).

    Levels of an axis that are compared over different strata share no studentized range: Bonferroni there.
    """

    low: FiniteFloat
    high: FiniteFloat
    level: Probability
    groups: Count


class Contrast(_Part):
    """Difference of two means: that of ``b`` minus that of ``a``.

    Attributes:
        a, b: groups, in the order of the tables.
        difference, se, df: estimate, standard error, degrees of freedom.
        ci: interval of this one difference; ``band``: simultaneous over all pairs of groups.
        p, p_adjusted: of no difference; adjusted, like the band, only where the row's omnibus test is
            rejected.
        family: id of the family, null where it is not tested.
        status: as in a cell; ``reason``: why it is undefined, or has no band.
        flags: cautions, "depends_on_filter" among them.
    """

    a: str
    b: str
    difference: FiniteFloat | None
    se: FiniteFloat | None
    df: FiniteFloat | None
    ci: Interval | None
    band: Band | None
    p: Probability | None
    p_adjusted: Probability | None
    family: str | None
    status: Status
    reason: str = ""
    flags: tuple[str, ...]
    reasons: dict[str, str] = {}


class Difference(Contrast):
    """Difference of two groups' mean changes.

    Attributes:
        strata: on a coarser axis, the strata that the difference averages with equal weights: those in which
            both levels have pairs.
        minimum_detectable_effect: smallest difference that the band finds with power .8.
        equivalence_p: of |difference| >= margin (two one-sided tests); ``equivalence_p_adjusted``: Holm over
            ``equivalence_family``; at most 1 - level says "inside the margin".
        identities_for_half_width: of a and b, for a band of the half-width asked for; both grow alike.
        reasons: field that is null though the status is "ok" -> why.
    """

    strata: tuple[str, ...] = ()
    minimum_detectable_effect: FiniteFloat | None = None
    equivalence_p: Probability | None = None
    equivalence_p_adjusted: Probability | None = None
    equivalence_family: str | None = None
    identities_for_half_width: tuple[Count, Count] | None = None


class Omnibus(_Part):
    """One test that all groups' mean changes are equal.

    Attributes:
        method: "games-howell", "bonferroni" for levels that are compared over different strata, or of a
            diagnostic "htz" (CR2 Wald, Pustejovsky & Tipton 2018) or "welch".
        statistic, df1, df2: F and its degrees of freedom; of "games-howell" the studentized range of the pair
            with the smallest p, the number of means compared, and that pair's degrees of freedom.
        p, p_adjusted, family: as in a cell.
        status: "ok" or "undefined"; ``reason`` says why.
        flags: "few_identities" and "skewed" where a group in the test has them.
        used: groups in the test; ``left_out``: groups without variance, which no test can hold.
    """

    method: str
    statistic: FiniteFloat | None
    df1: FiniteFloat | None
    df2: FiniteFloat | None
    p: Probability | None
    p_adjusted: Probability | None
    family: str | None
    status: Status
    reason: str = ""
    flags: tuple[str, ...]
    used: tuple[str, ...]
    left_out: tuple[str, ...]
    reasons: dict[str, str] = {}


class LevelDifference(Contrast):
    """The difference of two levels inside one stratum, or of two such differences.

    Attributes:
        a, b: levels (``within``), or strata (``between``: that of b minus that of a).
        where: the stratum (``within``), or which levels are subtracted (``between``: "female minus male").
    """

    where: str


class Interaction(_Part):
    """Whether the levels of one factor differ alike in all strata of the other.

    Attributes:
        factor: whose levels are subtracted ("sex").
        test: no difference between strata: the smallest simultaneous p of ``between``.
        within: the difference of two levels in each stratum.
        between: how these differences differ between two strata.
    """

    factor: str
    test: Omnibus
    within: tuple[LevelDifference, ...]
    between: tuple[LevelDifference, ...]


class Disparity(_Part):
    """Differences between the groups of one axis for one attribute and concept.

    Attributes:
        target, by, attribute, concept: where.
        omnibus: the test that decides whether the groups differ.
        diagnostic: HTZ (or Welch's analysis of variance), which decides nothing; null for two groups, whose
            only p is that of their difference, and for groups that share people.
        interaction: on a coarser axis with two strata or more, else null.
        pairwise: every difference of two groups.
    """

    target: str
    by: str
    attribute: str
    concept: str
    omnibus: Omnibus
    diagnostic: Omnibus | None = None
    interaction: Interaction | None
    pairwise: tuple[Difference, ...]

    @model_validator(mode="before")
    @classmethod
    def _read_bare_test(cls, data: Any) -> Any:
        """Earlier records hold an interaction's test alone."""
        if isinstance(data, dict) and isinstance(old := data.get("interaction"), dict) and "test" not in old:
            held = {"factor": data.get("by"), "test": old, "within": (), "between": ()}
            return {**data, "interaction": held}
        return data

    reasons: dict[str, str] = {}


class IdentityMean(_Part):
    """Mean over identities of their mean change: another estimand where sizes go with changes.

    ``low`` and ``high`` are its interval, widened by Hall (1992) where these means are skewed; ``reason``
    says why there is none.
    """

    delta: FiniteFloat | None
    low: FiniteFloat | None
    high: FiniteFloat | None
    status: Status
    reason: str = ""


class ScaleCheck(_Part):
    """The same cell on another scale.

    Attributes:
        floor_share, ceiling_share: share of scores at the ends of the scale.
        scale: "logit" (scores inside (0, 1)) or "rank".
        delta, low, high: mean change on that scale.
        status: of that interval; ``reason`` says why there is none.
        scale_dependent: sign or decision differ between the scales.
    """

    floor_share: Probability | None
    ceiling_share: Probability | None
    scale: str
    delta: FiniteFloat | None
    low: FiniteFloat | None
    high: FiniteFloat | None
    status: Status = "ok"
    reason: str = ""
    scale_dependent: bool


class Detail(_Part):
    """What stands beside a cell of the planned rows.

    Attributes:
        attribute, concept, group: which cell.
        identity_mean: the mean of identity means.
        icc: intraclass correlation of the changes within identities, may be negative.
        dz, g: standardised mean change, and with Hedges' correction.
        minimum_detectable_effect: smallest change found with power .8 at the report's level by the t test.
        identities_for_half_width: identities for a t interval of the half-width asked for.
        equivalence_p: of |delta| >= margin (two one-sided tests, by the bounds of the cell's interval).
        equivalence_p_adjusted: Holm over ``equivalence_family``: at most 1 - level says "inside the margin".
        scale: the same cell on another scale.
        reasons: field that is null -> why.
    """

    attribute: str
    concept: str
    group: str
    identity_mean: IdentityMean
    icc: FiniteFloat | None
    dz: FiniteFloat | None
    g: FiniteFloat | None
    minimum_detectable_effect: FiniteFloat | None
    identities_for_half_width: Count | None
    equivalence_p: Probability | None
    equivalence_p_adjusted: Probability | None = None
    equivalence_family: str | None = None
    scale: ScaleCheck
    reasons: dict[str, str] = {}


class Finding(_Part):
    """One effect found by searching, as the confirmation half of the identities shows it.

    Attributes:
        attribute, concept, group: where.
        same_as: earlier concepts with the same scores, which this one repeats.
        delta, se, df: in the confirmation half.
        p, p_adjusted: against |delta| <= margin in that half; Holm over the distinct findings.
        smallest: lower bound of |delta|, simultaneous over the distinct findings (Bonferroni, 1 - alpha).
        confirmed: p_adjusted is at most alpha.
        flags: of the cell, and of its confirmation half.
        status, reason: of the estimate in the confirmation half.
        reasons: field that is null though the status is "ok" -> why.
    """

    attribute: str
    concept: str
    group: str
    same_as: str | None
    delta: FiniteFloat | None
    se: FiniteFloat | None
    df: FiniteFloat | None
    p: Probability | None
    p_adjusted: Probability | None
    smallest: FiniteFloat | None
    confirmed: bool
    flags: tuple[str, ...] = ()
    status: Status = "ok"
    reason: str = ""
    reasons: dict[str, str] = {}


class Discovery(_Part):
    """A search over all concepts, groups and attributes, confirmed on other identities.

    Attributes:
        margin: the null is |delta| <= margin.
        alpha: false discovery rate of the search and family-wise error of the confirmation.
        seed: of the split of identities into halves, stratified by group.
        searched: distinct tests; repeated concepts count once.
        findings: what the discovery half found, largest lower bound first.
    """

    margin: FiniteFloat
    alpha: Probability
    seed: Count
    searched: Count
    findings: tuple[Finding, ...]


class SelectionCheck(_Part):
    """A difference on kept pairs beside what the filter may have done to it.

    Attributes:
        attribute, concept, a, b: which difference (b minus a).
        kept, candidates: on kept pairs, and on all candidates that could be scored.
        p_kept, p_candidates: unadjusted.
        depends_on_filter: the two disagree in sign or decision.
        keep_a, keep_b: kept share of the scorable candidates.
        lee_low, lee_high: Lee (2009) trimming bounds on kept pairs.
        lee_ci: interval around these bounds that holds the difference (Imbens & Manski 2004).
        status: "not_available" where candidates of a or b were not answered; all but ``kept`` is null then.
        reason: why, else empty.
    """

    attribute: str
    concept: str
    a: str
    b: str
    kept: FiniteFloat | None
    candidates: FiniteFloat | None
    p_kept: Probability | None
    p_candidates: Probability | None
    depends_on_filter: bool | None
    keep_a: Probability | None
    keep_b: Probability | None
    lee_low: FiniteFloat | None
    lee_high: FiniteFloat | None
    lee_ci: Interval | None = None
    status: Availability = "ok"
    reason: str = ""
    reasons: dict[str, str] = {}


class SelectionState(_Part):
    """Whether it can be told what the filter does to differences.

    Attributes:
        status: "ok", "partial" (some checks are not available) or "not_available".
        reason: why it is not "ok", else empty.
        rejected: rejected candidates that were asked about.
        unanswered: those of them without an answer.
    """

    status: Literal["ok", "partial", "not_available"]
    reason: str = ""
    rejected: Count = 0
    unanswered: Count = 0


class Attrition(_Part):
    """Pairs of one attribute and group that a target could not answer, by reason.

    Attributes:
        target, attribute, group: where.
        reason: "no_face" (failure to acquire) and the other reasons of an exclusion.
        n_pairs: pairs that were asked about.
        lost: pairs lost to the reason.
        share, low, high: Wilson interval on the effective sample size by identity.
        level: of the interval.
    """

    target: str
    attribute: str
    group: str
    reason: str
    n_pairs: Count
    lost: Count
    share: Probability
    low: Probability
    high: Probability
    level: Probability


class AcquisitionShare(_Part):
    """Share of one group's pairs that a target could not answer.

    Attributes:
        group: whose.
        n_pairs, n_identities: pairs of which it is known whether there is an answer, and their identities.
        failed: pairs without (reasons "no_face" and "no_answer").
        share, low, high: Wilson interval on the effective sample size by identity.
        level: of the interval.
    """

    group: str
    n_pairs: Count
    n_identities: Count
    failed: Count
    share: Probability
    low: Probability
    high: Probability
    level: Probability


class Acquisition(_Part):
    """Failures to acquire of one attribute, by group.

    Attributes:
        target, attribute: where.
        shares: one a group with pairs, in the order of the tables.
        disparity: differences of the shares, tested like those of mean changes; null with a single group.
    """

    target: str
    attribute: str
    shares: tuple[AcquisitionShare, ...]
    disparity: Disparity | None


class Family(_Part):
    """A family of tests: ``m`` tests planned, adjusted together by ``method``."""

    id: str
    m: Count
    method: str


class PictureCheck(_Part):
    """Pairs of one group that a check of the pictures concerns."""

    check: str
    group: str
    n_pairs: Count


class Data(_Part):
    """Where the pairs come from.

    Attributes:
        path: as given.
        kind: "table", "dataset" or "scores".
        sha256: of the table's bytes, or of the dataset's labels and picture digests.
        rows: rows read.
        n_pairs: pairs with labels.
        n_pictures: distinct pictures.
        fault_share: share of rows and pairs lost to faults.
        cautions: what the pictures are not fit to show; every table says so.
        config, split: what was read of a dataset.
    """

    path: str
    kind: str
    sha256: str
    rows: Count
    n_pairs: Count
    n_pictures: Count
    fault_share: Probability
    cautions: tuple[str, ...] = ()
    config: str = ""
    split: str = ""


class AuditSettings(_Part):
    """The settings that shape the numbers.

    ``identities`` says what a cluster is: an identity of its group, or a person who may be in several groups.
    """

    method: str
    level: Probability
    by: tuple[str, ...]
    seed: Count
    margin: FiniteFloat | None
    half_width: FiniteFloat | None
    references: int | None
    taxonomy: str | None
    taxonomy_digest: str | None
    max_failures: Probability
    identities: Literal["group", "people"] = "group"
    reasons: dict[str, str] = {}


class Record(_Part):
    """All that an audit found.

    ``filtered_by`` holds the roles of the detectors whose weights are the target's own: such a model has
    itself decided which pairs were kept, so that no difference between groups may be claimed.
    """

    schema_version: Literal["facedelta.audit/1"] = Field(default=SCHEMA_VERSION, alias="schema")
    facedelta_version: str
    data: Data
    settings: AuditSettings
    targets: tuple[TargetCard, ...]
    groups: tuple[str, ...]
    attributes: tuple[str, ...]
    concepts: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    cells: tuple[Cell, ...]
    families: tuple[Family, ...] = ()
    disparities: tuple[Disparity, ...] = ()
    details: tuple[Detail, ...] = ()
    discovery: Discovery | None = None
    selection: tuple[SelectionCheck, ...] = ()
    selection_state: SelectionState | None = None
    recognition: tuple[Recognition, ...] = ()
    attrition: tuple[Attrition, ...] = ()
    acquisition: tuple[Acquisition, ...] = ()
    picture_checks: tuple[PictureCheck, ...] = ()
    filtered_by: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reasons: dict[str, str] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def no_claim(self) -> str:
        """Why no difference between groups may be claimed from this run; empty where one may."""
        return no_claim(self.filtered_by)


def no_claim(filtered_by: Sequence[str]) -> str:
    """The sentence for a run whose model has filtered the pairs in these roles; empty without any."""
    if not filtered_by:
        return ""
    roles = ", ".join(f"{role} detector" for role in filtered_by)
    return f"the same weights filtered the dataset ({roles}): no disparity may be claimed from this run"


def write_record(record: Record, run: Path) -> None:
    """Write RUN/record.json, whole or not at all."""
    write_json(run / RECORD_FILE, record.model_dump(mode="json", by_alias=True))


def read_record(path: Path) -> Record:
    """Read a record.

    Args:
        path: a run's folder or its record.json.

    Raises:
        InputError: missing, truncated, with NaN, of another schema version, not a record, or one that
            contradicts itself.
    """
    file = path / RECORD_FILE if path.is_dir() else path
    try:
        data = parse_json(read_regular(file).decode(), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise InputError(f"no such record: {file}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} must be UTF-8: {error}") from None
    except ValueError as error:
        raise InputError(f"{file} is not strict JSON (truncated, NaN, or a key twice): {error}") from None
    version = data.get("schema") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise InputError(f"{file}: schema must be '{SCHEMA_VERSION}', got {version!r}")
    try:
        record = Record.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"{file} is not a valid record: '{place}': {fault['msg']}") from None
    for contradiction in itertools.chain(faulty_numbers(data), contradictions(record)):
        raise InputError(f"{file} contradicts itself, was it edited? {contradiction}")
    return record


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a record."""
    return Record.model_json_schema(by_alias=True, mode="serialization")
