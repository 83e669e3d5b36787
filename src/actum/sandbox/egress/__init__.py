"""Egress by name: the host's side of a sandbox's network.

A sandbox has its own network namespace without routes. Each permitted name has an address of its
own on the sandbox's loopback, and a listening socket per port whose descriptor the host holds: a
door. The host relays each connection: it resolves the real name, judges every address, and connects
to a judged address.
"""
