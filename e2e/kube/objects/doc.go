// Package objects tests the objects that gateways write, with a real API server (build tag kube).
package objects
