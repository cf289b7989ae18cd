# Run a command as in a pod: with its own mounts, on this machine's files. The caller starts it with unshare --mount.
# Usage: pod.sh ROOT SECRETS HOSTS [SOURCE:PATH ...] -- COMMAND
#   ROOT     an empty folder, on which the pod's file system is built
#   SECRETS  the folder of the service account, with its namespace, token and certificate
#   HOSTS    the file /etc/hosts of the pod
#   SOURCE   a file or folder of this machine that the pod has at PATH
set -eu
root=$1 secrets=$2 hosts=$3
shift 3
mount --make-rprivate /
mount --bind "$hosts" /etc/hosts
mount -t tmpfs tmpfs "$root"
for entry in /* /.[!.]*; do
  if [ -L "$entry" ]; then cp -P "$entry" "$root/"
  elif [ -d "$entry" ]; then mkdir "$root$entry" && mount --rbind "$entry" "$root$entry"
  fi
done
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/run/secrets/kubernetes.io"
cp -r "$secrets" "$root/run/secrets/kubernetes.io/serviceaccount"
while [ "$1" != -- ]; do
  source=${1%:*} target=$root${1##*:}
  if [ -d "$source" ]; then mkdir -p "$target"; else mkdir -p "$(dirname "$target")" && : > "$target"; fi
  mount --bind "$source" "$target"
  shift
done
shift
exec chroot "$root" "$@"
