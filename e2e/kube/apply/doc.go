// Package apply tests hawser apply, diff --live, status and uninstall against real API servers
// (build tag kube). They have no nodes; the tests write the objects of agents.
package apply
