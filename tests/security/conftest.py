from hostile.fixtures import jail, own_jail, probe, shared_jail

__all__ = ["jail", "own_jail", "probe", "shared_jail"]
