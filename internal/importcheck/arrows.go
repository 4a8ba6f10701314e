// Package importcheck contains the test that enforces the import rules between packages (see
// docs/architecture.md).
package importcheck
