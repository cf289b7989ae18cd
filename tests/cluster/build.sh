#!/usr/bin/env bash
# Build the programs of the test cluster: tests/cluster/build.sh FOLDER [KFP ARGO]
# With Go 1.26; Kubernetes, etcd and KServe's controller are Go modules. KFP and ARGO are folders with the sources of
# kubeflow/pipelines at its tag 2.16.1 and of argoproj/argo-workflows at v3.7.8: `git clone --branch TAG` of each.
# KFP's API server needs a C compiler. FOLDER gets the programs, and in FOLDER/manifests what describes them:
#   kfp/     manifests/kustomize of KFP's sources
#   argo/    manifests of Argo's
#   kserve/  config of KServe's module
# Debian has the rest: apt-get install containerd runc containernetworking-plugins iproute2 mariadb-server-core mariadb-client-core
set -euo pipefail
bin=$(realpath -m "$1")
kfp=$(realpath -m "${2:-none}") argo=$(realpath -m "${3:-none}")
mkdir -p "$bin/manifests"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOFLAGS=-mod=mod CGO_ENABLED=0
jobs=${JOBS:-2}

build() { # build MODULE VERSION PACKAGE... : one Go module of its own; the environment variable LD has linker flags
  local module=$1 version=$2
  shift 2
  go get "$module@$version"
  go build -p "$jobs" -trimpath -ldflags "-s -w ${LD:-}" -o "$bin/" "$@"
}

copy() { # copy FOLDER NAME: manifests
  rm -rf "$bin/manifests/$2"
  cp -r "$1" "$bin/manifests/$2"
}

mkdir "$work/kubernetes" && cd "$work/kubernetes"
kubernetes=1.34.3
go mod init kubernetes
# k8s.io/kubernetes requires its staging modules in version 0.0.0; the releases have the same content.
for name in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap code-generator \
  component-base component-helpers controller-manager cri-api cri-client csi-translation-lib dynamic-resource-allocation endpointslice \
  externaljwt kms kube-aggregator kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils \
  pod-security-admission sample-apiserver sample-cli-plugin sample-controller; do
  go mod edit -replace "k8s.io/$name=k8s.io/$name@v0${kubernetes#1}"
done
LD="-X k8s.io/component-base/version.gitVersion=v$kubernetes" build k8s.io/kubernetes v$kubernetes \
  k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kubectl}

mkdir "$work/etcd" && cd "$work/etcd"
go mod init etcd
build go.etcd.io/etcd/server/v3 v3.6.16 go.etcd.io/etcd/server/v3
mv "$bin/server" "$bin/etcd" 2>/dev/null || true

mkdir "$work/kserve" && cd "$work/kserve"
go mod init kserve
go get github.com/kserve/kserve@v0.20.0
cp -r "$(go list -m -f '{{.Dir}}' github.com/kserve/kserve)" sources # where its own go.mod decides on versions
chmod -R u+w sources
cd sources
go build -p "$jobs" -trimpath -ldflags "-s -w" -o "$bin/kserve-manager" ./cmd/manager
copy config kserve

# The program of a pod's sandbox: it waits for the signal that ends it.
mkdir "$work/pause" && cd "$work/pause"
go mod init pause
cat > main.go << 'GO'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
GO
go build -trimpath -ldflags "-s -w" -o "$bin/pause" .

export GOFLAGS=-mod=readonly
if [ -d "$argo" ]; then
  cd "$argo"
  go build -p "$jobs" -trimpath -ldflags "-s -w" -o "$bin/" ./cmd/argoexec ./cmd/workflow-controller
  copy manifests argo
fi
if [ -d "$kfp" ]; then
  cd "$kfp"
  src=./backend/src
  go build -p "$jobs" -trimpath -ldflags "-s -w" -o "$bin/" "$src"/v2/cmd/{launcher-v2,driver}
  go build -p "$jobs" -trimpath -ldflags "-s -w" -o "$bin/persistence_agent" "$src/agent/persistence"
  go build -p "$jobs" -trimpath -ldflags "-s -w" -o "$bin/scheduledworkflow" "$src/crd/controller/scheduledworkflow"
  # SQLite's driver, which it links, is C
  CGO_ENABLED=1 go build -p "$jobs" -trimpath -tags netgo,osusergo -ldflags "-s -w" -o "$bin/apiserver" "$src/apiserver"
  copy manifests/kustomize kfp
fi
ls -l "$bin"
