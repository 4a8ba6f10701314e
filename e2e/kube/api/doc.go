// Package api starts Kubernetes API servers for tests: etcd and kube-apiserver on this
// machine, without nodes, in some four seconds and without root (build tag kube).
package api
