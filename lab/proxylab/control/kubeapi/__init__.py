"""The Kubernetes API as lists, watches and single objects, without sockets or an event loop.

``proxylab.control.apiserver`` serves it on sockets. It has these parts of the API
(https://kubernetes.io/docs/reference/using-api/api-concepts/): list and watch of a few kinds, with label and field
selectors, resource versions, bookmarks and streaming lists (KEP-3157), single objects, discovery, and the events that
components report. It refuses everything else with a Status that clients understand.
"""
