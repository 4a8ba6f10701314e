// Package importcheck holds the test that enforces which package may import which
// (see docs/architecture.md).
package importcheck
