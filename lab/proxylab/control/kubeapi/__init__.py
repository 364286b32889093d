"""The Kubernetes API as lists, watches and single objects, without a socket.

Owns: what a request asks for, what is selected, and the JSON that answers it.
Must not: open sockets, wait, or run an event loop; ``proxylab.control.apiserver`` puts this on sockets.

What is kept of the API (https://kubernetes.io/docs/reference/using-api/api-concepts/): list and watch of a few kinds,
with label and field selectors, resource versions, bookmarks and streaming lists (KEP-3157), single objects, discovery,
and the events that components report. Everything else is refused with the Status that a client understands.
"""
