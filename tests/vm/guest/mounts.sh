# Sourced by the first process of a machine: what every program expects to find.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /tmp
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1
cd /tmp

# A checkout below a folder that only root may enter is shown in an open one of the same name.
closed=
folder=$(dirname "$repository")
while [ "$folder" != / ]; do
    case $(stat -c %A "$folder") in *[xt]) ;; *) closed=$folder ;; esac
    folder=$(dirname "$folder")
done
if [ -n "$closed" ]; then
    mkdir /tmp/aside
    mount --bind "$repository" /tmp/aside
    mount -t tmpfs -o mode=755 tmpfs "$closed"
    mkdir -p "$repository"
    mount --move /tmp/aside "$repository"
fi
