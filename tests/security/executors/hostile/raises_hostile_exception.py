# ends: FAILED EXECUTOR_EXCEPTION


class Meta(type):
    def __getattribute__(cls, name):
        raise SystemExit(name)


class Hostile(Exception, metaclass=Meta):
    pass


def execute(req):
    raise Hostile
