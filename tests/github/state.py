"""What the stand-in knows: users, tokens, repositories and what is in them. Tests read and change it directly."""

import hashlib
import itertools
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

__all__ = ["Comment", "Commit", "Issue", "Pull", "Repository", "State", "Status", "Token", "User"]

# What a workflow's own token may do when its `permissions:` grant what this action's workflows ask for.
GRANTED = {"contents": "read", "issues": "write", "metadata": "read", "pull_requests": "write", "statuses": "write"}
ROLES = {"admin": "admin", "maintain": "write", "write": "write", "triage": "read", "read": "read", "none": "none"}


@dataclass
class User:
    login: str
    id: int
    type: str = "User"
    """`User`, `Bot` or `Organization`."""


@dataclass
class Token:
    """Who a request is from, and what it may do."""

    text: str
    user: User
    permissions: dict[str, str] | None
    """Of an installation (a workflow's token, an app's), such as `{"issues": "write"}`; None for a person's token,
    which may do what the person's role allows."""
    repositories: set[str]
    """Full names of the repositories that an installation was given."""

    @property
    def installation(self) -> bool:
        return self.permissions is not None


@dataclass
class Commit:
    sha: str
    message: str
    author: User
    parents: list[str]
    created_at: str


@dataclass
class Status:
    id: int
    sha: str
    state: str
    context: str
    description: str | None
    target_url: str | None
    creator: User
    created_at: str


@dataclass
class Comment:
    id: int
    number: int
    """Of the issue or pull request."""
    user: User
    body: str
    created_at: str
    updated_at: str
    minimized: str | None = None
    """The reason why it is hidden, such as `outdated`."""
    app: str | None = None
    """The slug of the app whose installation wrote it."""
    reactions: list[tuple[int, User, str]] = field(default_factory=list)
    """Id, who, and which: `eyes`, `+1`, …"""


@dataclass
class Issue:
    number: int
    id: int
    title: str
    body: str | None
    user: User
    created_at: str
    updated_at: str
    state: str = "open"
    state_reason: str | None = None
    closed_at: str | None = None
    labels: list[str] = field(default_factory=list)
    deleted: bool = False
    """A deleted issue is gone (410)."""


@dataclass
class Pull(Issue):
    head_sha: str = ""
    head_ref: str = "change"
    head_repo: str | None = None
    """Full name; None when the fork was deleted."""
    head_owner: str = ""
    base_ref: str = "main"
    base_sha: str = ""
    commits: list[str] = field(default_factory=list)
    """Oldest first, the head last."""
    draft: bool = False
    merged_at: str | None = None


class State:
    """Everything that the stand-in knows, and how to add to it.

    Time is a clock of its own that moves on by a second at each reading, so that nothing ever has the same time.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users: dict[str, User] = {}
        self.tokens: dict[str, Token] = {}
        self.repositories: dict[str, Repository] = {}
        self._ids = itertools.count(1001)
        self._time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> str:
        self._time += timedelta(seconds=1)
        return f"{self._time:%Y-%m-%dT%H:%M:%SZ}"

    def new_id(self) -> int:
        return next(self._ids)

    def user(self, login: str) -> User:
        """Return the user of that login, new where there is none; `…[bot]` is a bot."""
        with self.lock:
            if login not in self.users:
                kind = "Bot" if login.endswith("[bot]") else "User"
                self.users[login] = User(login, self.new_id(), kind)
            return self.users[login]

    def add_repository(self, full_name: str, *, private: bool = False, fork_of: str | None = None) -> "Repository":
        """Add a repository with one commit on `main`; its owner is its admin."""
        with self.lock:
            repository = Repository(self, full_name, self.new_id(), private=private, fork_of=fork_of)
            repository.roles[repository.owner.login] = "admin"
            repository.branches["main"] = repository.add_commit("First").sha
            self.repositories[full_name] = repository
            return repository

    def add_installation_token(
        self, login: str, *repositories: str, permissions: dict[str, str] | None = None
    ) -> Token:
        """Add a token of an app's installation, such as a workflow's (`github-actions[bot]`)."""
        granted = GRANTED if permissions is None else permissions
        return self._add_token(
            f"ghs_{login}", Token("", self.user(login), {"metadata": "read", **granted}, set(repositories))
        )

    def add_personal_token(self, login: str) -> Token:
        """Add a person's classic token: it may do what that person's roles allow."""
        return self._add_token(f"ghp_{login}", Token("", self.user(login), None, set()))

    def _add_token(self, prefix: str, token: Token) -> Token:
        with self.lock:
            token.text = f"{prefix.replace('[bot]', '')}{self.new_id()}"
            self.tokens[token.text] = token
            return token


@dataclass
class Repository:
    world: State = field(repr=False)
    full_name: str
    id: int
    private: bool = False
    """Only who has a role, or an installation that was given it, sees a private repository; to others it is a 404."""
    fork_of: str | None = None
    has_issues: bool = True
    roles: dict[str, str] = field(default_factory=dict)
    """By login: `admin`, `maintain`, `write`, `triage`, `read` or `none`."""
    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    """By number; pull requests are among them."""
    comments: dict[int, Comment] = field(default_factory=dict)
    statuses: list[Status] = field(default_factory=list)

    @property
    def owner(self) -> User:
        return self.world.user(self.full_name.split("/")[0])

    @property
    def pulls(self) -> dict[int, Pull]:
        return {number: issue for number, issue in self.issues.items() if isinstance(issue, Pull)}

    def role(self, login: str) -> str:
        return self.roles.get(login, "none" if self.private else "read")

    def add_commit(self, message: str = "Change", *, sha: str | None = None, parents: Iterable[str] = ()) -> Commit:
        with self.world.lock:
            number = self.world.new_id()
            sha = sha or hashlib.sha1(f"{self.full_name} {number}".encode(), usedforsecurity=False).hexdigest()
            commit = Commit(sha, message, self.owner, list(parents), self.world.now())
            self.commits[sha] = commit
            return commit

    def find_commit(self, ref: str) -> Commit | None:
        """Return the commit of a sha, a branch, or the beginning of one sha only (four characters or more)."""
        branch = ref.removeprefix("refs/").removeprefix("heads/")
        if branch in self.branches:
            return self.commits.get(self.branches[branch])
        matches = [commit for sha, commit in self.commits.items() if len(ref) >= 4 and sha.startswith(ref.lower())]
        return matches[0] if len(matches) == 1 else None

    def new_number(self) -> int:
        return max(self.issues, default=0) + 1

    def add_issue(
        self, title: str, body: str | None = None, *, user: str = "alice", labels: Iterable[str] = ()
    ) -> Issue:
        with self.world.lock:
            now = self.world.now()
            author = self.world.user(user)
            issue = Issue(self.new_number(), self.world.new_id(), title, body, author, now, now, labels=list(labels))
            self.issues[issue.number] = issue
            return issue

    def add_pull(
        self,
        title: str = "A change",
        *,
        number: int | None = None,
        user: str = "alice",
        head_ref: str = "change",
        head_repo: str | None = None,
        head_sha: str | None = None,
    ) -> Pull:
        """Add an open pull request with one commit, from this repository or from the fork `head_repo`."""
        with self.world.lock:
            now = self.world.now()
            base = self.branches["main"]
            head = self.add_commit(title, sha=head_sha, parents=[base]).sha
            source = head_repo or self.full_name
            pull = Pull(
                self.new_number() if number is None else number,
                self.world.new_id(),
                title,
                None,
                self.world.user(user),
                now,
                now,
                head_sha=head,
                head_ref=head_ref,
                head_repo=source,
                head_owner=source.split("/")[0],
                base_sha=base,
                commits=[head],
            )
            self.issues[pull.number] = pull
            if head_repo is None:
                self.branches[head_ref] = head
            return pull

    def push(self, pull: Pull, *, sha: str | None = None, force: bool = False) -> str:
        """Push one more commit to a pull request, or with `force` another in place of all; return the new head."""
        with self.world.lock:
            commit = self.add_commit("Another", sha=sha, parents=[pull.base_sha if force else pull.head_sha])
            pull.commits = [commit.sha] if force else [*pull.commits, commit.sha]
            pull.head_sha, pull.updated_at = commit.sha, self.world.now()
            if pull.head_repo == self.full_name:
                self.branches[pull.head_ref] = commit.sha
            return commit.sha

    def add_comment(
        self, number: int, body: str, *, user: str = "alice", minimized: str | None = None, app: str | None = None
    ) -> Comment:
        with self.world.lock:
            now = self.world.now()
            author = self.world.user(user)
            comment = Comment(self.world.new_id(), number, author, body, now, now, minimized=minimized, app=app)
            self.comments[comment.id] = comment
            return comment

    def edit_comment(self, comment: Comment, body: str) -> None:
        with self.world.lock:
            comment.body, comment.updated_at = body, self.world.now()

    def comments_on(self, number: int) -> list[Comment]:
        """Return the comments on an issue or pull request, oldest first."""
        with self.world.lock:
            return sorted((c for c in self.comments.values() if c.number == number), key=lambda comment: comment.id)

    def statuses_of(self, sha: str) -> list[Status]:
        """Return the statuses of a commit, newest first."""
        with self.world.lock:
            return [status for status in reversed(self.statuses) if status.sha == sha]
