// Package gitops runs Flux and Argo CD on what Hawser publishes (build tag kube): their
// real controllers, as processes, against a real API server and a git server that
// speaks HTTP. hack/setup-gitops.sh builds them.
package gitops
