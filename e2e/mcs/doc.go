// Package mcs holds one test for each rule of the Multi-Cluster Services API
// (KEP-1645) that the upstream conformance suite checks: twenty-seven, each with
// a name of its own. They run against any clusters, whoever made them: contexts of
// KUBECONFIG, with the rights of an administrator. See docs/conformance.md.
package mcs
