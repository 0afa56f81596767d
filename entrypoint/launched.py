"""`launch.json`: how the legs were run, as `launch` wrote it. Data like all that the job with the legs left."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from entrypoint.rejudge import NoResultError
from parity.checks.outcome import Verdict
from parity.errors import UsageError
from parity.plain import plain
from parity.untrusted import MissingError, read_bytes

__all__ = ["Finding", "Launched", "read"]

_MOST_BYTES = 1 << 20
# Exit codes of `parity run`; any other is that of something which failed before or after it.
_SAID: Final[Mapping[int | None, Verdict]] = {0: Verdict.PASS, 1: Verdict.FAIL, 3: Verdict.INCONCLUSIVE}


class Finding(BaseModel):
    """What the preflight found: an `error` kept the legs from running, a `warning` did not."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    level: Literal["error", "warning"]
    name: str
    text: str


class Image(BaseModel):
    """What the container was made of."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    digest: str | None = None


class Launched(BaseModel):
    """How the legs were run, as far as a report says it; `entrypoint.launching.record` has the whole list.

    Attributes:
        isolation: in a container, or as processes of the job; None if it did not come to that.
        why: how that was decided.
        tested_sha: the commit that was checked out.
        run_id: of the workflow run.
        image: of the container.
        network: of the container.
        ended: when, UTC.
        how: `finished`, `timed out`, `interrupted` or `not started`.
        exit_code: of the run, or of what failed instead.
        error: why there is nothing to judge.
        preflight: what it found.
    """

    # Strict: "0" is no exit code.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    format: Literal["parity.launch/1"] = "parity.launch/1"
    isolation: Literal["docker", "process"] | None = None
    why: str = ""
    tested_sha: str | None = None
    run_id: int | str | None = None
    image: Image | None = None
    network: str | None = None
    ended: str = ""
    how: Literal["finished", "timed out", "interrupted", "not started"] = "not started"
    exit_code: int | None = None
    error: str | None = None
    preflight: list[Finding] = []

    def problems(self) -> list[str]:
        """Why there is nothing to judge."""
        found = [f"{one.name}: {one.text}" for one in self.preflight if one.level == "error"]
        return list(dict.fromkeys([*([self.error] if self.error else []), *found]))

    def worst(self) -> Verdict:
        """The best verdict that a run which was so may have."""
        if self.how != "finished" or self.isolation is None:
            return Verdict.ERROR
        return _SAID.get(self.exit_code, Verdict.ERROR)

    def said(self) -> str:
        """How it ended, in a sentence."""
        how = "was not started" if self.how == "not started" else self.how
        code = "" if self.exit_code is None else f" with exit code {self.exit_code}"
        unknown = "" if self.isolation else ", and nothing says where the legs ran"
        return f"The run as a whole {how}{code}{unknown}."

    def notes(self) -> list[str]:
        """What a reader of the report must know of it."""
        warnings = [f"{one.name}: {one.text}" for one in self.preflight if one.level == "warning"]
        reason = f", as {self.why}" if self.why else ""
        if self.isolation == "docker":
            image = (
                f" of {self.image.name}{f' ({self.image.digest})' if self.image.digest else ''}" if self.image else ""
            )
            network = "" if self.network in (None, "none") else f", and with the network {self.network}"
            return [f"The legs ran in a container{image}, without a token{network}{reason}.", *warnings]
        if self.isolation == "process":
            within = "whatever the job's machine holds was within their reach"
            return [f"The legs ran as processes of the job, not isolated: {within}{reason}.", *warnings]
        return ["The legs did not run, or how they did is not known.", *warnings]


def read(out: Path) -> Launched:
    """Read the `launch.json` of a folder.

    Raises:
        NoResultError: there is none, or it is none of ours.
    """
    path = out / "launch.json"
    try:
        return Launched.model_validate_json(read_bytes(path, within=out, limit=_MOST_BYTES))
    except MissingError:
        raise NoResultError(
            f"{path}: there is none: the legs were not run by this action, or not to an end"
        ) from None
    except UsageError as error:
        raise NoResultError(str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = plain(".".join(map(str, first["loc"])) or "file")
        raise NoResultError(f"{path}: {where}: {plain(first['msg'])}") from None
