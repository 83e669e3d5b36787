"""Egress by name: the host's side of a sandbox's few doors to the outside.

A sandbox has its own network namespace in which nothing routes. Each permitted name has an
address of its own on the sandbox's loopback, and a listening socket per port whose descriptor the
host holds. Whoever connects there is connected on by the host: the real name is resolved here,
every answer is judged, and the address that was judged is the one connected to.
"""
