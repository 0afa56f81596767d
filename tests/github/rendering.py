"""State as GitHub's JSON: what means something here. The server adds what else GitHub's description requires."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from .state import ROLES, Comment, Commit, Issue, Pull, Repository, Status, User

__all__ = ["Rendering"]

Json = dict[str, Any]


@dataclass(frozen=True)
class Rendering:
    api: str
    """Where the API is, without a slash at the end."""
    web: str

    def repository_url(self, repository: Repository) -> str:
        return f"{self.api}/repos/{repository.full_name}"

    def user(self, user: User) -> Json:
        url = f"{self.api}/users/{user.login}"
        web = f"{self.web}/{user.login}"
        return {
            "login": user.login,
            "id": user.id,
            "type": user.type,
            "url": url,
            "html_url": web,
            "site_admin": False,
        }

    def repository(self, repository: Repository) -> Json:
        return {
            **self._named_repository(repository.full_name, repository.fork_of is not None),
            "id": repository.id,
            "owner": self.user(repository.owner),
            "private": repository.private,
            "visibility": "private" if repository.private else "public",
            "has_issues": repository.has_issues,
            "default_branch": "main",
        }

    def _named_repository(self, full_name: str, fork: bool) -> Json:
        url = f"{self.api}/repos/{full_name}"
        web = f"{self.web}/{full_name}"
        name = full_name.split("/")[1]
        return {"name": name, "full_name": full_name, "url": url, "html_url": web, "fork": fork}

    def permission(self, repository: Repository, user: User) -> Json:
        role = repository.role(user.login)
        return {"permission": ROLES[role], "role_name": role, "user": {**self.user(user), "role_name": role}}

    def commit(self, repository: Repository, commit: Commit) -> Json:
        url = f"{self.repository_url(repository)}/commits"
        person = {
            "name": commit.author.login,
            "email": f"{commit.author.login}@github.test",
            "date": commit.created_at,
        }
        return {
            "sha": commit.sha,
            "url": f"{url}/{commit.sha}",
            "html_url": f"{self.web}/{repository.full_name}/commit/{commit.sha}",
            "commit": {"message": commit.message, "author": person, "committer": person},
            "author": self.user(commit.author),
            "committer": self.user(commit.author),
            "parents": [{"sha": sha, "url": f"{url}/{sha}"} for sha in commit.parents],
        }

    def status(self, repository: Repository, status: Status) -> Json:
        return {
            **self.simple_status(repository, status),
            "creator": self.user(status.creator),
        }

    def simple_status(self, repository: Repository, status: Status) -> Json:
        return {
            "url": f"{self.repository_url(repository)}/statuses/{status.sha}",
            "id": status.id,
            "state": status.state,
            "context": status.context,
            "description": status.description,
            "target_url": status.target_url,
            "created_at": status.created_at,
            "updated_at": status.created_at,
        }

    def comment(self, repository: Repository, comment: Comment) -> Json:
        url = self.repository_url(repository)
        kind = "pull" if comment.number in repository.pulls else "issues"
        web = f"{self.web}/{repository.full_name}/{kind}/{comment.number}#issuecomment-{comment.id}"
        counts = Counter(content for _, _, content in comment.reactions)
        kinds = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")
        return {
            "id": comment.id,
            "url": f"{url}/issues/comments/{comment.id}",
            "html_url": web,
            "issue_url": f"{url}/issues/{comment.number}",
            "user": self.user(comment.user),
            "body": comment.body,
            "created_at": comment.created_at,
            "updated_at": comment.updated_at,
            "author_association": self._association(repository, comment.user),
            "performed_via_github_app": self._app(comment.app),
            "reactions": {"total_count": counts.total(), **{kind: counts[kind] for kind in kinds}},
            "minimized": comment.minimized and {"reason": comment.minimized},
        }

    def reaction(self, reaction: tuple[int, User, str]) -> Json:
        return {"id": reaction[0], "user": self.user(reaction[1]), "content": reaction[2]}

    def issue(self, repository: Repository, issue: Issue) -> Json:
        url = f"{self.repository_url(repository)}/issues/{issue.number}"
        pull = isinstance(issue, Pull)
        web = f"{self.web}/{repository.full_name}/{'pull' if pull else 'issues'}/{issue.number}"
        shown = {
            "id": issue.id,
            "number": issue.number,
            "url": url,
            "html_url": web,
            "comments_url": f"{url}/comments",
            "repository_url": self.repository_url(repository),
            "title": issue.title,
            "body": issue.body,
            "user": self.user(issue.user),
            "state": issue.state,
            "state_reason": issue.state_reason,
            "labels": [{"name": name, "color": "ededed", "default": False} for name in issue.labels],
            "comments": len(repository.comments_on(issue.number)),
            "created_at": issue.created_at,
            "updated_at": issue.updated_at,
            "closed_at": issue.closed_at,
            "author_association": self._association(repository, issue.user),
        }
        if isinstance(issue, Pull):
            here = f"{self.repository_url(repository)}/pulls/{issue.number}"
            shown["pull_request"] = {"url": here, "html_url": web, "merged_at": issue.merged_at}
            shown["draft"] = issue.draft
        return shown

    def pull(self, repository: Repository, pull: Pull) -> Json:
        shown = self.issue(repository, pull)
        for name in ("pull_request", "state_reason", "repository_url", "comments"):
            del shown[name]
        shown["url"] = f"{self.repository_url(repository)}/pulls/{pull.number}"
        shown["issue_url"] = f"{self.repository_url(repository)}/issues/{pull.number}"
        shown["labels"] = [{"id": 0, "description": None, **label} for label in shown["labels"]]
        return {
            **shown,
            "head": self._head(repository, pull),
            "base": {
                "label": f"{repository.owner.login}:{pull.base_ref}",
                "ref": pull.base_ref,
                "sha": pull.base_sha,
                "user": self.user(repository.owner),
                "repo": self.repository(repository),
            },
            "draft": pull.draft,
            "merged_at": pull.merged_at,
        }

    def whole_pull(self, repository: Repository, pull: Pull) -> Json:
        """The pull request as it is alone, with what a list leaves out."""
        return {
            **self.pull(repository, pull),
            "merged": pull.merged_at is not None,
            "comments": len(repository.comments_on(pull.number)),
            "commits": len(pull.commits),
            "mergeable": None,
            "mergeable_state": "unknown",
        }

    def _head(self, repository: Repository, pull: Pull) -> Json:
        owner = self.user(repository.world.user(pull.head_owner))
        known = repository.world.repositories.get(pull.head_repo or "")
        repo = None
        if known is not None:
            repo = self.repository(known)
        elif pull.head_repo is not None:
            repo = {**self._named_repository(pull.head_repo, True), "owner": owner, "default_branch": "main"}
        label = f"{pull.head_owner}:{pull.head_ref}"
        return {"label": label, "ref": pull.head_ref, "sha": pull.head_sha, "user": owner, "repo": repo}

    def _association(self, repository: Repository, user: User) -> str:
        if user.login == repository.owner.login:
            return "OWNER"
        return "COLLABORATOR" if ROLES[repository.role(user.login)] in ("admin", "write") else "NONE"

    def _app(self, slug: str | None) -> Json | None:
        if slug is None:
            return None
        return {"slug": slug, "name": slug, "permissions": {}, "events": []}
