// Package gitops runs Flux on what Hawser publishes (build tag kube): its real
// controller of Kustomizations, as a process, against a real API server and a git
// server that speaks HTTP. hack/setup-gitops.sh builds it.
package gitops
