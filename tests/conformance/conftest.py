from engines.fixtures import docker, engine, own_engine, podman

__all__ = ["docker", "engine", "own_engine", "podman"]
