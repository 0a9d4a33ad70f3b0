"""The dashboard: watch and manage queues in a browser. `app` returns it as an ASGI application.

How to extend it:

- **A page is one module of `delayq.web.pages`** and one template of the same name: ``pages/queue.py`` and
  ``templates/queue.html``. The module has `ROUTES`, each with a name of its own, which ``url()`` takes. It may have a
  `NAV` or a `TAB`: a `render.NavLink` that base.html shows in the navigation of a server, or above the pages of a
  queue. `PAGES` lists the modules, in the order of their links.
- **A path names its server and its queue**: ``/{server:name}/queues/{queue:name}/…``. The converter ``name`` accepts
  any name or id, with slashes. `path_params.server_of` and `path_params.queue_of` read them, and raise a 404. Templates
  build paths with ``url("queue", server=…, queue=…)``, which works under a prefix and behind a proxy: never write a
  link by hand. Static files come from ``asset("style.css")``.
- **A page answers with** ``render.page(request, "queue.html", …)``. Its template extends ``base.html``, fills the
  blocks ``title`` and ``main``, and sets ``active`` to the name of its route. Templates share the macros in
  ``parts.html``. Inline scripts and styles are forbidden: the browser refuses them.
- **A change is a POST**. It answers with `audit.back`, a redirect with a notice of what was done. Its form starts with
  ``{{ parts.token(token) }}``; a template leaves the form out if ``may_act`` is false. The middleware in `security`
  answers 403 to a request without the token, from another origin, or from a user with read-only access, so an action
  needs no check of its own. The fields are in ``visit(request).form``. ``async with audit.audited(request, "pause",
  queue="emails")`` writes the audit line, however the block ends.
- **Long work** is a `background_jobs.BackgroundJob` that does work of `job_work`. `request_jobs.start` starts it, with
  an audit line; it outlives its request, has its own page, and can be stopped between two steps. Its form carries
  ``once``, so that a form sent twice starts one job.
- **A live part** has its own template, whose name starts with an underscore. Its outer element has an id. Its page
  includes it, puts ``{{ parts.seen("that id") }}`` above it, and sets ``stream`` to the path of a route that answers
  with ``sse.stream``: a page has one stream for all its parts. The route yields `live_part.LivePart`;
  ``static/live.js`` morphs what it receives into the element with the same id. `poller.ServerPoller` reads each server
  once for all browsers.
- **A part that requests its successor**, such as the charts or a search, has an id, ``data-next`` (a path) and
  ``data-after`` (seconds). A link in it with ``data-swap`` does so when clicked.
- **A refused form comes back.** Its endpoint has `@error_pages.back_on(page)`, with the function that shows the page of
  the form; ``with forms.field("when"):`` names the field of an InvalidInput. The template takes its fields from
  ``forms.html``, which fills in what was typed and says what is wrong.
- **The HTTP API** in `delayq.web.api` can do what the pages can: if you add an action to a page, add an operation too.
  Neither imports the other: what both need, such as `actions.start`, is a module beside them. Actions are rows of
  `delayq.model.actions`; those on messages have their operations, buttons and confirmations made from them. A change of
  a topic is a class, such as `group_changes.Move`; `pages.change_topics` makes its confirmation and its routes.
- Raise errors, do not render them: `error_pages` turns a `DelayqError` into a page with its remedy, with status 400,
  409 or 503.
"""

from delayq.web.app import Dashboard, app
from delayq.web.auth import Login, Role, Token, User, Users, user_line

__all__ = ["Dashboard", "Login", "Role", "Token", "User", "Users", "app", "user_line"]
