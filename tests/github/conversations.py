"""What GitHub does for issues, comments and reactions, in the words of its own answers."""

from .calls import Answer, Call, Refusal, endpoint, invalid, newest
from .state import Comment, Pull


@endpoint("issues/list-for-repo")
def list_issues(call: Call) -> Answer:
    call.may("read", "issues")
    query = call.query
    labels = {label for label in query.get("labels", "").split(",") if label}
    issues = [
        issue
        for issue in call.repository.issues.values()
        if not issue.deleted
        and query.get("state", "open") in ("all", issue.state)
        and labels <= set(issue.labels)
        and query.get("creator") in (None, issue.user.login)
        and issue.updated_at >= query.get("since", "")
    ]
    return Answer(200, [call.show.issue(call.repository, issue) for issue in newest(issues, query)])


@endpoint("issues/get")
def get_issue(call: Call) -> Answer:
    issue = call.issue(call.path["issue_number"])
    call.talk("read", issue)
    return Answer(200, call.show.issue(call.repository, issue))


@endpoint("issues/create")
def create_issue(call: Call) -> Answer:
    call.may("write", "issues")
    repository, body = call.repository, call.body
    if not repository.has_issues:
        raise Refusal(410, "Issues has been disabled in this repository.")
    title = str(body["title"])
    if not title.strip():
        raise invalid("Issue", "title", "missing_field", "title can't be blank")
    issue = repository.add_issue(title, _issue_text(call), user=call.caller.user.login, labels=_labels(call))
    shown = call.show.issue(repository, issue)
    return Answer(201, shown, {"Location": shown["url"]})


@endpoint("issues/update")
def update_issue(call: Call) -> Answer:
    issue = call.issue(call.path["issue_number"])
    call.talk("write", issue)
    if not call.caller.installation and call.role not in ("admin", "write") and call.caller.user != issue.user:
        raise Refusal(403, "Must have admin rights to Repository.")
    body = call.body
    if body.get("title") is not None:
        issue.title = str(body["title"])
    if "body" in body:
        issue.body = _issue_text(call)
    if "labels" in body:
        issue.labels = _labels(call)
    now = call.world.now()
    if body.get("state", issue.state) != issue.state:
        issue.state = body["state"]
        closed = issue.state == "closed"
        issue.closed_at = now if closed else None
        issue.state_reason = body.get("state_reason") or ("completed" if closed else "reopened")
    issue.updated_at = now
    return Answer(200, call.show.issue(call.repository, issue))


def _issue_text(call: Call) -> str | None:
    text: str | None = call.body.get("body")
    if text is not None and len(text) > call.body_limit:
        raise invalid("Issue", "body", "custom", f"body is too long (maximum is {call.body_limit} characters)")
    return text


def _labels(call: Call) -> list[str]:
    """The labels asked for; GitHub drops them silently where the caller may not set any."""
    if not call.caller.installation and call.role not in ("admin", "write"):
        return []
    return [label if isinstance(label, str) else label["name"] for label in call.body.get("labels", ())]


@endpoint("issues/list-comments")
def list_comments(call: Call) -> Answer:
    issue = call.issue(call.path["issue_number"])
    call.talk("read", issue)
    comments = [c for c in call.repository.comments_on(issue.number) if c.updated_at >= call.query.get("since", "")]
    return Answer(200, [call.show.comment(call.repository, comment) for comment in comments])


@endpoint("issues/create-comment")
def create_comment(call: Call) -> Answer:
    issue = call.issue(call.path["issue_number"])
    call.talk("write", issue)
    repository, token = call.repository, call.caller
    if not (repository.has_issues or isinstance(issue, Pull)):
        raise Refusal(410, "Issues has been disabled in this repository.")
    app = token.user.login.removesuffix("[bot]") if token.installation else None
    text = call.text("IssueComment")
    comment = repository.add_comment(issue.number, text, user=token.user.login, app=app)
    shown = call.show.comment(repository, comment)
    return Answer(201, shown, {"Location": shown["url"]})


@endpoint("issues/get-comment")
def get_comment(call: Call) -> Answer:
    comment = call.comment()
    call.talk("read", call.issue(comment.number))
    return Answer(200, call.show.comment(call.repository, comment))


@endpoint("issues/update-comment")
def update_comment(call: Call) -> Answer:
    comment = _comment_to_change(call)
    call.repository.edit_comment(comment, call.text("IssueComment"))
    return Answer(200, call.show.comment(call.repository, comment))


@endpoint("issues/delete-comment")
def delete_comment(call: Call) -> Answer:
    del call.repository.comments[_comment_to_change(call).id]
    return Answer(204)


def _comment_to_change(call: Call) -> Comment:
    comment = call.comment()
    call.talk("write", call.issue(comment.number))
    if not call.caller.installation and call.role not in ("admin", "write") and call.caller.user != comment.user:
        raise Refusal(403, "Must have admin rights to Repository.")
    return comment


@endpoint("reactions/list-for-issue-comment")
def list_reactions(call: Call) -> Answer:
    comment = call.comment()
    call.talk("read", call.issue(comment.number))
    wanted = call.query.get("content")
    return Answer(200, [call.show.reaction(r) for r in comment.reactions if wanted in (None, r[2])])


@endpoint("reactions/create-for-issue-comment")
def create_reaction(call: Call) -> Answer:
    comment = call.comment()
    call.talk("write", call.issue(comment.number))
    user, content = call.caller.user, call.body["content"]
    for reaction in comment.reactions:
        if reaction[1:] == (user, content):
            return Answer(200, call.show.reaction(reaction))
    comment.reactions.append((call.world.new_id(), user, content))
    return Answer(201, call.show.reaction(comment.reactions[-1]))
