from engines.fixtures import docker, engine, own_engine, podman
from postgres.fixtures import postgres

__all__ = ["docker", "engine", "own_engine", "podman", "postgres"]
