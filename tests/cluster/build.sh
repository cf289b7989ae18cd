#!/usr/bin/env bash
# Build the programs of the test cluster that are Go modules: tests/cluster/build.sh FOLDER
# Bring the others into the same folder, from a release of KFP 2.16: apiserver, driver, launcher-v2, persistence_agent and
# scheduledworkflow, in its images under /bin (the last one as /bin/controller); workflow-controller and argoexec of Argo Workflows 3.7.8;
# and into FOLDER/manifests:
#   kfp/     the folder manifests/kustomize of that release
#   argo/    the folder manifests of Argo Workflows 3.7
#   kserve/  the folder config/crd of KServe 0.21
# Debian has the rest: apt-get install containerd runc containernetworking-plugins iproute2 mariadb-server-core mariadb-client-core
set -euo pipefail
bin=$(realpath -m "$1")
mkdir -p "$bin"
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
  k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet}

mkdir "$work/etcd" && cd "$work/etcd"
go mod init etcd
build go.etcd.io/etcd/server/v3 v3.6.16 go.etcd.io/etcd/server/v3
mv "$bin/server" "$bin/etcd" 2>/dev/null || true

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
ls -l "$bin"
