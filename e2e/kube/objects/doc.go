// Package objects holds the test of what gateways write, against a real API server
// (build tag kube).
package objects
