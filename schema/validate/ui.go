package validate

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
)

// maxHosts is the maximum number of the page's host names.
const maxHosts = 16

// ui checks the settings of the web page. Its hosts are the allowed Host headers, so they must be
// DNS names.
func (c *checker) ui() {
	u := c.set.Spec.UI
	if u == nil {
		return
	}
	c.clusterNames("ui.clusters", u.Clusters)
	c.domain("ui.tokenSecret", u.TokenSecret)
	c.image("ui.image", u.Image)
	if n := len(u.Hosts); n > maxHosts {
		c.Fail("too-many", "ui.hosts", fmt.Sprintf("%d names, the page can have %d", n, maxHosts), "")
		return
	}
	seen := uniqueness{}
	for i, host := range u.Hosts {
		path := fieldpath.Index("ui.hosts", i)
		c.checkHost(path, host)
		c.unique(seen, host, path, host+" is listed twice")
	}
}

// checkHost checks a DNS name of the page.
func (c *checker) checkHost(path, text string) {
	fail := func(summary, hint string) {
		c.Fail("bad-host", path, summary, hint)
	}
	const example = "write the name alone: map.example.com"
	name, port, hasPort := strings.Cut(text, ":")
	_, addrErr := netip.ParseAddr(strings.Trim(text, "[]"))
	at, urlErr := url.Parse(text)
	switch {
	case text == "":
		fail("is missing", example)
	case addrErr == nil:
		fail(fmt.Sprintf("%q is an address, not a name", text), "give the page a name in DNS, such as map.example.com")
	case urlErr == nil && at.Host != "" && fabric.IsDomain(at.Hostname()):
		fail(fmt.Sprintf("%q is a URL, not a name", text), "write "+at.Hostname())
	case hasPort && fabric.IsDomain(name) && strings.Trim(port, "0123456789") == "":
		fail(fmt.Sprintf("%q has a port: every port of a name counts", text), "write "+name)
	case strings.Contains(text, "*"):
		fail(fmt.Sprintf("%q is a pattern: other pages of the domain could ask for this one", text), "list each name")
	case strings.EqualFold(text, "localhost"):
		fail("localhost needs no mention: kubectl port-forward always leads to the page", "leave it out")
	default:
		c.domain(path, text)
	}
}
