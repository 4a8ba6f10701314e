// Package tree tests the rendered tree on a real API server.
package tree
