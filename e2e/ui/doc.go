// Package ui tests the page of hawser ui in a browser, and the Grafana dashboard with Grafana's
// types. It is a separate module: the browser driver is no dependency of Hawser. make e2e-ui runs
// it.
package ui
