// Package kube contains the tests on real Kubernetes clusters (build tag kube; make e2e-kube). The
// command in lab starts the clusters.
package kube
