// Package apply tests hawser apply, diff --live, status and uninstall against real
// API servers (build tag kube). They have no nodes; what agents would write is
// written by the tests.
package apply
