// Package kube holds the tests on real Kubernetes clusters (build tag kube; make
// e2e-kube); lab makes the clusters.
package kube
