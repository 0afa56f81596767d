"""What GitHub does for repositories, commits, statuses and pull requests, in the words of its own answers."""

from .calls import Answer, Call, Refusal, endpoint, invalid, newest
from .state import Status


@endpoint("users/get-authenticated")
def get_user(call: Call) -> Answer:
    if call.caller.installation:
        raise Refusal(403, "Resource not accessible by integration")
    return Answer(200, {**call.show.user(call.caller.user), "user_view_type": "private"})


@endpoint("repos/get")
def get_repository(call: Call) -> Answer:
    return Answer(200, call.show.repository(call.repository))


@endpoint("repos/get-collaborator-permission-level")
def get_permission(call: Call) -> Answer:
    if not call.caller.installation and call.role not in ("admin", "write"):
        raise Refusal(403, "Must have push access to view collaborator permission.")
    login = call.path["username"]
    user = call.world.users.get(login)
    if user is None or (user.type != "User" and login not in call.repository.roles):
        raise Refusal(404, f"{login.removesuffix('[bot]')} is not a user")
    return Answer(200, call.show.permission(call.repository, user))


@endpoint("repos/get-commit")
def get_commit(call: Call) -> Answer:
    call.may("read", "contents")
    commit = call.commit(call.path["ref"])
    if "application/vnd.github.sha" in call.accept:
        return Answer(200, commit.sha, media_type="application/vnd.github.sha")
    return Answer(200, call.show.commit(call.repository, commit))


@endpoint("repos/list-pull-requests-associated-with-commit")
def list_pulls_of_commit(call: Call) -> Answer:
    call.may("read", "pull_requests")
    sha = call.commit(call.path["commit_sha"]).sha
    pulls = [p for p in call.repository.pulls.values() if sha in p.commits and (p.state == "open" or p.merged_at)]
    return Answer(200, [call.show.pull(call.repository, pull) for pull in pulls])


@endpoint("repos/get-combined-status-for-ref")
def get_combined_status(call: Call) -> Answer:
    call.may("read", "statuses")
    sha = call.commit(call.path["ref"]).sha
    latest: dict[str, Status] = {}
    for status in call.repository.statuses_of(sha):
        latest.setdefault(status.context.lower(), status)
    states = {status.state for status in latest.values()}
    whole = (
        "failure" if states & {"error", "failure"} else "pending" if "pending" in states or not states else "success"
    )
    shown = {
        "sha": sha,
        "state": whole,
        "total_count": len(latest),
        "statuses": [call.show.simple_status(call.repository, status) for status in latest.values()],
        "repository": call.show.repository(call.repository),
    }
    return Answer(200, shown)


@endpoint("repos/list-commit-statuses-for-ref")
def list_statuses(call: Call) -> Answer:
    call.may("read", "statuses")
    statuses = call.repository.statuses_of(call.commit(call.path["ref"]).sha)
    return Answer(200, [call.show.status(call.repository, status) for status in statuses])


@endpoint("repos/create-commit-status")
def create_status(call: Call) -> Answer:
    call.may("write", "statuses")
    if not call.caller.installation and call.role not in ("admin", "write"):
        raise Refusal(404, "Not Found")
    sha, body = call.path["sha"], call.body
    if len(sha) != 40:
        raise invalid("Status", "sha", "custom", "sha must be a 40 character SHA1")
    if sha not in call.repository.commits:
        raise Refusal(422, f"No commit found for SHA: {sha}")
    if len(body.get("description") or "") > 140:
        raise invalid("Status", "description", "custom", "description is too long (maximum is 140 characters)")
    if body.get("target_url") and not body["target_url"].startswith(("http://", "https://")):
        raise invalid("Status", "target_url", "custom", "target_url must use http(s) scheme")
    context = body.get("context") or "default"
    if sum(status.context == context for status in call.repository.statuses_of(sha)) >= 1000:
        message = "This SHA and context has reached the maximum number of statuses."
        raise invalid("Status", "base", "custom", message)
    status = Status(
        call.world.new_id(),
        sha,
        body["state"],
        context,
        body.get("description"),
        body.get("target_url"),
        call.caller.user,
        call.world.now(),
    )
    call.repository.statuses.append(status)
    shown = call.show.status(call.repository, status)
    return Answer(201, shown, {"Location": shown["url"]})


@endpoint("pulls/get")
def get_pull(call: Call) -> Answer:
    call.may("read", "pull_requests")
    return Answer(200, call.show.whole_pull(call.repository, call.pull()))


@endpoint("pulls/list")
def list_pulls(call: Call) -> Answer:
    call.may("read", "pull_requests")
    query = call.query
    state, head, base = query.get("state", "open"), query.get("head"), query.get("base")
    pulls = [
        pull
        for pull in call.repository.pulls.values()
        if state in ("all", pull.state)
        and head in (None, f"{pull.head_owner}:{pull.head_ref}")
        and base in (None, pull.base_ref)
    ]
    return Answer(200, [call.show.pull(call.repository, pull) for pull in newest(pulls, query)])


@endpoint("pulls/list-commits")
def list_commits_of_pull(call: Call) -> Answer:
    call.may("read", "pull_requests")
    repository = call.repository
    # GitHub lists 250 commits and no more, however many pages are asked for.
    commits = [repository.commits[sha] for sha in call.pull().commits[:250]]
    return Answer(200, [call.show.commit(repository, commit) for commit in commits])
