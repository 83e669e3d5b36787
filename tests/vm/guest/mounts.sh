# Sourced by the first process of a machine: what every program expects to find.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# Set aside before anything of ours lies over it.
mount -t tmpfs tmpfs /mnt
mkdir /mnt/checkout
mount --bind "$repository" /mnt/checkout
mount -t tmpfs tmpfs /tmp
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1
cd /tmp

# A checkout that only root may enter, or that our own /tmp covers, is shown in open folders of the
# same name: part by part, because bound as a whole it would be as closed as before.
closed=
folder=$repository
while [ "$folder" != / ]; do
    case $(stat -c %A "$folder" 2>/dev/null) in "" | *[xt]) ;; *) closed=$folder ;; esac
    folder=$(dirname "$folder")
done
case $repository in /tmp/*) covered=yes ;; *) covered= ;; esac
if [ -n "$closed$covered" ]; then
    [ -n "$covered" ] || mount -t tmpfs -o mode=755 tmpfs "$closed"
    for part in .venv src tests scripts build; do
        mkdir -p "$repository/$part"
        mount --bind "/mnt/checkout/$part" "$repository/$part"
    done
fi
