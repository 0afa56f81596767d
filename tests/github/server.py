"""GitHub, as far as the action talks to it: a stand-in on loopback, held to GitHub's own OpenAPI description.

    def test_one_comment(github):                     # the fixture in `tests/github/fixtures.py`
        github.fail(faults.drop_after(), "POST", "*/comments")
        publish(github.url, github.token.text)        # or a child process with env=github.environ()
        assert [c.body for c in github.repository.comments_on(7)] == ["…"]

At the start there is the repository `org/project`, where `maya` is admin, `will` may write, and `rita` and everybody
else may read; the pull request 7 of `alice`, from a branch of the fork `alice/project`; and the token of a workflow.

    github.repository, .pull, .token   those
    github.url                         for GITHUB_API_URL; `GitHub(prefix="/api/v3")` is like an enterprise server
    github.environ(token=None)         GITHUB_API_URL, GITHUB_SERVER_URL, GITHUB_REPOSITORY, GITHUB_TOKEN and no proxy

State is plain objects, read and changed at any time (`state.py`):
    github.user(login)                 new where there is none; `…[bot]` is a bot
    github.add_repository("o/r", private=, fork_of=)
    github.add_installation_token("github-actions[bot]", "o/r", permissions={"issues": "write"})
    github.add_personal_token(login)   may do what that person's role allows
    repository.roles[login] = "write"  admin, maintain, write, triage, read or none
    repository.add_pull(…), .push(pull, force=), .add_issue(…), .add_commit(…), .find_commit(ref)
    repository.add_comment(number, body, user=, minimized=), .edit_comment(comment, body)
    repository.comments_on(number), .statuses_of(sha), .issues, .comments, .has_issues, .private
    pull.head_repo = None              the fork was deleted;  `issue.deleted = True` makes it 410
    github.body_limit                  65536

Faults (`faults.py`) and hooks strike at requests by method and path (`fnmatch`; `*` matches slashes too), `times` of
them (None: all) after `skip` others. Paths are as in `/repos/org/project/issues/7/comments`.
    github.fail(fault, method="*", path="*", times=1, skip=0)    `fault.after_all()`: the request takes effect first
    github.before(action, method, path, times=1, skip=0)         action(exchange) before the request takes effect
    github.after(action, method, path, times=1, skip=0)          … after it, before its answer is sent
Hooks run outside the lock: they may change state, send requests themselves, or wait for another thread. They and
faults return a `Rule` with `.hits`.

    github.log                         every `Exchange`: method, path, query, headers (the token replaced by whose it
                                       is), body, login, operation, status (None: no answer), fault, at (monotonic)
    github.sent(method, path)          those that match
    github.violations                  what was wrong: requests that GitHub would refuse for their form, or ignore in
                                       part; unknown operations; a token outside its header; answers of the stand-in
                                       that GitHub's description does not allow; faults that never struck
    github.forgive()                   return and forget them, where a test means it
`events.py` builds the payloads of the events that start a workflow.
The end of `with GitHub() as github:`, and so the fixture, raises if there are violations left.
"""

import hashlib
import json
import threading
import time
import traceback
from email.utils import formatdate
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from . import conversations, repositories
from .calls import ENDPOINTS, Answer, Call, Refusal, may_see
from .description import Operation, description
from .exchanges import Action, Exchange, Rule, matches
from .faults import Fault
from .paging import paginate
from .rendering import Rendering
from .state import State, Token
from .wire import Reply, Server

__all__ = ["GitHub"]

_ROUTES = (conversations, repositories)  # importing them fills ENDPOINTS
_VERSIONS = ("2022-11-28", "2026-03-10")
_LIMIT = 1000  # a workflow token's requests per hour and repository


class GitHub(State):
    """The stand-in; see the top of this module."""

    def __init__(self, *, prefix: str = "") -> None:
        super().__init__()
        self.body_limit = 65536
        self.log: list[Exchange] = []
        self.violations: list[str] = []
        self._rules: list[Rule] = []
        self._used = 0
        self._prefix = prefix
        self._server = Server(self._serve, self._failed)
        self.server_url = f"http://127.0.0.1:{self._server.server_port}"
        self.url = self.server_url + prefix
        self.show = Rendering(self.url, self.server_url)
        self.repository = self.add_repository("org/project")
        self.repository.owner.type = "Organization"
        self.repository.roles.update({"maya": "admin", "will": "write", "rita": "read"})
        for login in ("maya", "will", "rita", "alice"):
            self.user(login)
        self.pull = self.repository.add_pull(number=7, head_repo="alice/project")
        self.token = self.add_installation_token("github-actions[bot]", "org/project")

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()
        if error is None:
            never = [f"never struck: {rule.what}" for rule in self._rules if not rule.hits]
            problems = self.forgive() + never
            if problems:
                raise AssertionError("against GitHub's description:\n" + "\n".join(problems))

    def environ(self, token: Token | None = None) -> dict[str, str]:
        return {
            "GITHUB_API_URL": self.url,
            "GITHUB_SERVER_URL": self.server_url,
            "GITHUB_REPOSITORY": self.repository.full_name,
            "GITHUB_TOKEN": (token or self.token).text,
            "NO_PROXY": "127.0.0.1",
        }

    def fail(self, fault: Fault, method: str = "*", path: str = "*", *, times: int | None = 1, skip: int = 0) -> Rule:
        return self._add(Rule(fault, method, path, times, skip))

    def before(
        self,
        action: Action,
        method: str = "*",
        path: str = "*",
        *,
        times: int | None = 1,
        skip: int = 0,
    ) -> Rule:
        return self._add(Rule(action, method, path, times, skip, "before"))

    def after(
        self,
        action: Action,
        method: str = "*",
        path: str = "*",
        *,
        times: int | None = 1,
        skip: int = 0,
    ) -> Rule:
        return self._add(Rule(action, method, path, times, skip, "after"))

    def sent(self, method: str = "*", path: str = "*") -> list[Exchange]:
        with self.lock:
            return [exchange for exchange in self.log if matches(exchange, method, path)]

    def forgive(self) -> list[str]:
        with self.lock:
            problems, self.violations = self.violations, []
            return problems

    def _add(self, rule: Rule) -> Rule:
        with self.lock:
            self._rules.append(rule)
            return rule

    def _run_hooks(self, when: str, exchange: Exchange) -> None:
        with self.lock:
            due = [rule for rule in self._rules if rule.when == when and rule.strikes(exchange)]
        for rule in due:
            assert not isinstance(rule.what, Fault)
            try:
                rule.what(exchange)
            except Exception as error:
                self._failed(error)

    def _next_fault(self, exchange: Exchange) -> Fault | None:
        with self.lock:
            for rule in self._rules:
                if rule.when == "fault" and rule.strikes(exchange):
                    assert isinstance(rule.what, Fault)
                    exchange.fault = rule.what.name
                    return rule.what
        return None

    def _failed(self, error: BaseException) -> None:
        with self.lock:
            self.violations.append("the stand-in failed:\n" + "".join(traceback.format_exception(error)))

    def _object(self, exchange: Exchange, problem: str) -> None:
        with self.lock:
            self.violations.append(f"{exchange.method} {exchange.path}: {problem}")

    def _serve(self, method: str, target: str, headers: dict[str, str], raw: bytes) -> Reply | None:
        """Answer one request; None closes the connection without an answer."""
        token, exchange, problem = self._read(method, target, headers, raw)
        found = None if problem else self._find(exchange)
        self._run_hooks("before", exchange)
        fault = self._next_fault(exchange)
        answer = problem or Refusal(404, "Not Found").answer
        if found is not None and (fault is None or fault.applied):
            with self.lock:
                answer = self._answer(exchange, token, *found)
        self._run_hooks("after", exchange)
        reply = self._reply(exchange, answer, headers, fault)
        if fault is not None:
            if fault.delay:
                self._server.stopped.wait(fault.delay)
            if fault.dropped:
                return None
        exchange.status = reply.status
        return reply

    def _read(
        self, method: str, target: str, headers: dict[str, str], raw: bytes
    ) -> tuple[Token | None, Exchange, Answer | None]:
        """Return who sends, what, and an answer if it cannot be read."""
        split = urlsplit(target)
        path = split.path.removeprefix(self._prefix)
        if path.startswith("/repositories/"):  # as links to further pages name a repository
            number, _, rest = path.removeprefix("/repositories/").partition("/")
            named = {str(repository.id): repository.full_name for repository in self.repositories.values()}
            path = f"/repos/{named.get(number, number)}/{rest}"
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        token = self.tokens.get(secret) if scheme.lower() in ("bearer", "token") else None
        login = token.user.login if token else None
        shown = {**headers, **({"authorization": f"{scheme} of {login}"} if secret else {})}
        exchange = Exchange(method, path, dict(parse_qsl(split.query, keep_blank_values=True)), shown, None, login)
        problem = None
        if raw:
            try:
                exchange.body = json.loads(raw)
            except ValueError:
                problem = Refusal(400, "Problems parsing JSON").answer
        with self.lock:
            self.log.append(exchange)
            if any(known in target or known.encode() in raw for known in self.tokens):
                self._object(exchange, "the token is in the address or in the body")
            if not split.path.startswith(self._prefix):
                problem = Refusal(404, "Not Found").answer
                self._object(exchange, f"not below {self._prefix}")
        if "user-agent" not in headers:
            problem = Refusal(403, "Request forbidden by administrative rules. Please say who you are.").answer
        elif headers.get("x-github-api-version", _VERSIONS[0]) not in _VERSIONS:
            problem = Refusal(400, f"{headers['x-github-api-version']} is not a valid version.").answer
        elif secret and token is None:
            problem = Refusal(401, "Bad credentials").answer
        if problem is not None and problem.status != 401:
            self._object(exchange, problem.body["message"])
        return token, exchange, problem

    def _find(self, exchange: Exchange) -> tuple[Operation, dict[str, str], list[str]] | None:
        """Return the operation, the parameters in its path, and what GitHub refuses; tell of all that is wrong."""
        described = description()
        found = described.find(exchange.method, exchange.path)
        if found is None:
            self._object(exchange, "GitHub's description, as far as it is here, has no such operation")
            return None
        operation, path = found
        exchange.operation = operation.name
        for problem in described.ignored(operation, exchange.query, exchange.body):
            self._object(exchange, f"ignored: {operation.name} has {problem}")
        refused = list(described.refused(operation, exchange.query, exchange.body))
        for problem in refused:
            self._object(exchange, f"refused: {problem}")
        return operation, path, refused

    def _answer(
        self, exchange: Exchange, token: Token | None, operation: Operation, path: dict[str, str], refused: list[str]
    ) -> Answer:
        repository = self.repositories.get(f"{path.get('owner')}/{path.get('repo')}")
        accept = exchange.headers.get("accept", "")
        body = exchange.body or {}
        try:
            if "repo" in path and (repository is None or not may_see(repository, token)):
                raise Refusal(404, "Not Found")
            if refused:
                raise Refusal(422, "Invalid request.\n\n" + "\n".join(refused))
            call = Call(self, token, repository, path, exchange.query, body, accept, self.show, self.body_limit)
            answer = ENDPOINTS[operation.name](call)
        except Refusal as refusal:
            answer = refusal.answer
        except Exception as error:
            self._failed(error)
            return Refusal(500, "Server Error").answer
        return self._conform(exchange, operation, answer)

    def _conform(self, exchange: Exchange, operation: Operation, answer: Answer) -> Answer:
        """Cut the page, complete what GitHub's description requires, and hold the answer to it."""
        described = description()
        if ("query", "page") in operation.parameters and isinstance(answer.body, list):
            _, _, owner, name, rest = exchange.path.split("/", 4)
            # GitHub's links name the repository by its id.
            number = self.repositories[f"{owner}/{name}"].id
            paginate(answer, exchange.query, f"{self.url}/repositories/{number}/{rest}")
        schema = described.response_schema(operation, answer.status, answer.media_type)
        if schema is not None and answer.body is not None and answer.status < 400:
            answer.body = described.schemas.complete(schema, answer.body)
        for problem in described.response_problems(operation, answer.status, answer.media_type, answer.body):
            self._object(exchange, f"wrong answer: {problem}")
        return answer

    def _reply(self, exchange: Exchange, answer: Answer, headers: dict[str, str], fault: Fault | None) -> Reply:
        if fault is not None and fault.status is not None:
            reply = Reply(fault.status, {**fault.headers, "Content-Type": fault.media_type}, fault.body)
        else:
            text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body, ensure_ascii=False)
            content = b"" if answer.body is None else text.encode()
            reply = Reply(
                answer.status, {**answer.headers, "Content-Type": f"{answer.media_type}; charset=utf-8"}, content
            )
        if exchange.method == "GET" and reply.status == 200:
            etag = f'W/"{hashlib.sha256(reply.body).hexdigest()}"'
            reply.headers["ETag"] = etag
            known = [tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")]
            if etag.removeprefix("W/") in known:
                reply = Reply(304, {"ETag": etag}, b"")
        if fault is not None and fault.cut:
            reply.body = reply.body[: len(reply.body) // 2]
        reply.torn = fault is not None and fault.torn
        with self.lock:
            self._used += reply.status != 304
            left = max(_LIMIT - self._used, 0)
        if fault is not None and fault.reset_in is not None:
            left = 0
        reset = time.time() + (3600 if fault is None or fault.reset_in is None else fault.reset_in)
        reply.headers |= {
            "X-RateLimit-Limit": str(_LIMIT),
            "X-RateLimit-Remaining": str(left),
            "X-RateLimit-Used": str(_LIMIT - left),
            "X-RateLimit-Reset": str(int(reset + 0.999)),
            "X-RateLimit-Resource": "core",
            "X-GitHub-Request-Id": f"{len(self.log):04X}",
            "Date": formatdate(usegmt=True),
        }
        return reply
