// Package arrows holds the test that enforces which package may import which
// (see docs/architecture.md).
//
// Called by nobody: go test runs it, and so does make lint.
package arrows
