// Package ui has the tests of the page of hawser ui in a browser, and of the dashboard for
// Grafana by Grafana's types. It is a module of its own, so that what drives the browser is no
// dependency of Hawser. make e2e-ui runs it.
package ui
