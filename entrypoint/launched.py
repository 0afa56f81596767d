"""`launch.json`: how the legs were run, as `launch` wrote it. Data like all that the job with the legs left."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from entrypoint.rejudge import NoResultError
from parity.errors import UsageError
from parity.plain import plain
from parity.untrusted import MissingError, read_bytes

__all__ = ["Finding", "Launched", "read"]

_MOST_BYTES = 1 << 20


class Finding(BaseModel):
    """What the preflight found: an `error` kept the legs from running, a `warning` did not."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    level: Literal["error", "warning"]
    name: str
    text: str


class Launched(BaseModel):
    """How the legs were run.

    Attributes:
        isolation: in a container, or as processes of the job.
        image: of the container.
        reason: why there was no container.
        findings: of the preflight.
        exit_code: of the run; None if it did not come to an end.
        sha: the commit that was checked out.
        run_id, run_attempt: of the workflow run.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    isolation: Literal["docker", "process"] | None = None
    image: str | None = None
    reason: str = ""
    findings: list[Finding] = []
    exit_code: int | None = None
    sha: str = ""
    run_id: int | None = None
    run_attempt: int | None = None

    def notes(self) -> list[str]:
        """What a reader of the report must know of it."""
        where = {
            "docker": f"The legs ran in a container{f' of {self.image}' if self.image else ''}, without a token.",
            "process": "The legs ran as processes of the job itself, not in a container of their own: whatever the "
            "job's machine holds was within their reach.",
            None: "How the legs were run is not known.",
        }[self.isolation]
        return [f"{where} {self.reason}".strip(), *(f"{found.name}: {found.text}" for found in self.findings)]


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
