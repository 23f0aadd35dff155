"""Settings of the attribute detectors, as a recipe's ``[detect.attributes]`` or a file of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from targets.base.config import Settings, read_toml, validated
from targets.base.errors import InputError
from targets.base.text import nearest
from targets.openai_client import Endpoint, Seed, Temperature, TokensParameter, check_base_url


class AgeDetector(Settings):
    """A target with a concept "age", in years.

    Attributes:
        target: its spec; a path in it starts from the recipe's folder where something is there.
        settings: its settings, likewise.
    """

    target: str
    settings: dict[str, Any] = Field(default_factory=dict)


class GroundTruth(Settings):
    """The generator's own knowledge decides; nothing is asked."""

    method: Literal["ground-truth"] = "ground-truth"


class ClipConcepts(Settings):
    """The concepts that stand for one attribute.

    Attributes:
        positive: concepts of the target that say the attribute is there; their scores are averaged.
        negative: concepts that say it is not; their average is subtracted. May be empty.
        threshold: yes from this difference on, in units of the target's scores.
        margin: differences closer to the threshold than this are unknown.
    """

    positive: tuple[str, ...] = Field(min_length=1)
    negative: tuple[str, ...] = ()
    threshold: float = 0.0
    margin: float = Field(default=0.0, ge=0)


class Clip(Settings):
    """A decision rule over the scores of any target with concepts, such as zero-shot CLIP.

    Attributes:
        target: its spec.
        settings: its settings.
        concepts: attribute -> the concepts that stand for it; any other attribute is unknown.
    """

    method: Literal["clip"]
    target: str
    settings: dict[str, Any] = Field(default_factory=dict)
    concepts: dict[str, ClipConcepts] = Field(min_length=1)


class Vlm(Settings):
    """A vision-language model behind an OpenAI-compatible server.

    Attributes:
        model: name the server knows it by.
        base_url: of the server; OpenAI's where not given.
        key_env: environment variable that holds the key. A server of one's own needs none.
        form: "ours" asks about each face once, several in a picture; "paper" about each pair, source left and
            transformed right; "single" is "ours" with one attribute a question.
        faces_per_picture: in "ours" and "single", 1 to 8. A face that a common answer leaves open is asked
            about alone.
        shots: examples shown before a question: none, 2 or 4.
        examples: folder with labels.csv (picture, attribute, label) or built dataset they are taken from.
        phrases: attribute -> how the question writes it; the taxonomy's title where not given.
        side: of a face in the question, in pixels; larger ones are scaled down.
        temperature, seed, max_tokens: of the answer; "none" leaves temperature or seed out of the request.
        tokens_parameter: how the request names max_tokens; newer models want "max_completion_tokens".
        extra_body: more parameters of the request, as the server documents them; they are published.
        strict_schema: ask the server to hold the answer to the JSON schema.
        concurrency: requests at a time.
        timeout: seconds one answer may take.
        retries: how often a request is sent again after a rate limit, fault of the server or timeout.
        backoff: seconds before the first of them, doubled each time, where the server names no delay.
        answer_retries: how often a question is put again whose answer can't be used.
        max_failures: share of faces that may stay without any answer; above it the build stops.
        price_input, price_output: dollars a million tokens.
        budget: dollars; no request is sent that could pass it, earlier runs in the same folder counted.
        mode: "online", or "batch" for the Batch API (half the price, answers within a day).
        batch_requests: most requests in one batch.
        batch_discount: share of the price a batch costs.
        poll_seconds: between two looks at a batch.
    """

    method: Literal["vlm"]
    model: str
    base_url: str | None = None
    key_env: str = "OPENAI_API_KEY"
    form: Literal["ours", "paper", "single"] = "ours"
    faces_per_picture: int = Field(default=4, ge=1, le=8)
    shots: Literal[0, 2, 4] = 0
    examples: str | None = None
    phrases: dict[str, str] = Field(default_factory=dict)
    side: int = Field(default=512, ge=64, le=2048)
    temperature: Temperature = Field(default=0.1, ge=0, le=2)
    seed: Seed = None
    max_tokens: int = Field(default=1000, ge=16)
    tokens_parameter: TokensParameter = "max_tokens"
    extra_body: dict[str, Any] = Field(default_factory=dict)
    strict_schema: bool = True
    concurrency: int = Field(default=8, ge=1, le=256)
    timeout: float = Field(default=60.0, gt=0)
    retries: int = Field(default=5, ge=0)
    backoff: float = Field(default=1.0, ge=0)
    answer_retries: int = Field(default=1, ge=0)
    max_failures: float = Field(default=0.05, ge=0, le=1)
    price_input: float | None = Field(default=None, ge=0)
    price_output: float | None = Field(default=None, ge=0)
    budget: float | None = Field(default=None, ge=0)
    mode: Literal["online", "batch"] = "online"
    batch_requests: int = Field(default=1000, ge=1, le=50_000)
    batch_discount: float = Field(default=0.5, gt=0, le=1)
    poll_seconds: float = Field(default=30.0, gt=0)

    @model_validator(mode="after")
    def _fits_together(self) -> Vlm:
        if self.budget is not None and (self.price_input is None or self.price_output is None):
            raise ValueError("a budget needs price_input and price_output, dollars a million tokens")
        check_base_url(self.base_url)
        if bool(self.shots) != bool(self.examples):
            raise ValueError("shots and examples go together: give both or neither")
        return self

    def endpoint(self) -> Endpoint:
        """The server, as the client is told of it."""
        other = "max_tokens" if self.tokens_parameter == "max_completion_tokens" else "max_completion_tokens"
        remedies = {
            self.tokens_parameter: f"set tokens_parameter = '{other}'",
            "temperature": "set temperature = 'none'",
            "seed": "set seed = 'none'",
            "response_format": "set strict_schema = false",
        }
        return Endpoint(
            self.model, self.base_url, self.key_env, self.timeout, self.retries, self.backoff, remedies
        )


class Choice(Settings):
    """Several detectors, the best of them for each attribute and group, as ``detector choose`` found it.

    Attributes:
        file: JSON that the command wrote, beside the recipe.
    """

    method: Literal["choice"]
    file: str


Attributes = Annotated[GroundTruth | Clip | Vlm | Choice, Field(discriminator="method")]
METHODS: dict[str, type[Settings]] = {
    "ground-truth": GroundTruth,
    "clip": Clip,
    "vlm": Vlm,
    "choice": Choice,
}
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Attributes)


def detector_from(data: dict[str, Any], where: str) -> GroundTruth | Clip | Vlm | Choice:
    """Settings of one detector from a table with a ``method``.

    Raises:
        InputError: unknown method or key, value out of range.
    """
    method = str(data.get("method"))
    if method not in METHODS:
        raise InputError(f"{where}: method must be one of {', '.join(METHODS)}, got '{method}'")
    model = METHODS[method]
    try:
        return _ADAPTER.validate_python(data)  # type: ignore[no-any-return]
    except ValidationError:
        # Validated again by the model itself, whose faults have no union in their path.
        return validated(model, data, where)  # type: ignore[return-value]


def load_detector(path: Path) -> GroundTruth | Clip | Vlm | Choice:
    """Settings of one detector from a TOML file that holds what ``[detect.attributes]`` would.

    Raises:
        InputError: missing file, unknown method or key, value out of range.
    """
    return detector_from(read_toml(path), str(path))


def check_attributes(names: dict[str, Any], known: dict[str, Any], where: str) -> None:
    """Check that settings name attributes of the taxonomy.

    Raises:
        InputError: one that doesn't exist, with the nearest that does.
    """
    for name in names:
        if name not in known:
            raise InputError(f"{where} names '{name}', which is no attribute{nearest(name, known)}")
