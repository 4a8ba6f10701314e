// Package gitops tests Flux and Argo CD with Hawser's publish branch (build tag kube). It runs their
// real controllers as processes, with a real API server and a git server over HTTP.
// hack/setup-gitops.sh builds them.
package gitops
