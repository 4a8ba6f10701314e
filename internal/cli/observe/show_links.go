package observe

import (
	"fmt"
	"strings"
	"time"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/nodeagent/status"
)

// connectionTable has a row for each link of the cluster's gateways.
func connectionTable(members []status.Status, wide bool) cli.Table {
	t := cli.Table{Head: []string{"GATEWAY", "TO CLUSTER", "TO GATEWAY", "ENDPOINT", "DRIVER", "STATUS", "RTT", "ACTIVE", "LOSS"}}
	if wide {
		t.Head = append(t.Head, "MTU", "EPOCH", "RTT min/avg/max/stddev ms", "BYTES in/out", "SINCE", "RANK", "REASON", "REACHED AT", "CHANGES TO")
	}
	for _, s := range members {
		for _, c := range s.Connections {
			row := []string{c.Gateway, c.RemoteCluster, c.RemoteGateway, c.Endpoint, c.Driver,
				c.Status, agentquery.AverageRTT(c.RTT), cli.YesNo(c.Active), percent(c.Loss)}
			if wide {
				changes := ""
				if c.Migration != nil {
					changes = c.Migration.To + ": " + c.Migration.Reason
				}
				row = append(row, cli.Number(c.MTU), cli.Number(c.Epoch), formatRTT(c.RTT), traffic(c), formatTime(c.Since), c.Rank,
					reasonText(c), c.EndpointReason, changes)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// nodeTable has a row for each node that receives packets of other clusters from another node.
func nodeTable(members []status.Status, wide bool) cli.Table {
	t := cli.Table{Head: []string{"FROM", "TO", "PATH", "DEVICE", "REASON"}}
	if wide {
		t.Head = append(t.Head, "ADDRESS")
	}
	for _, s := range members {
		for _, n := range s.Nodes {
			row := []string{s.Node, n.Node, n.Path, n.Device, n.Reason}
			if wide {
				row = append(row, n.Addr)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// pathTable has a row for each other cluster. If the nodes of the cluster use different links, each
// link has a row with its nodes.
func pathTable(members []status.Status, wide bool) cli.Table {
	t := cli.Table{Head: []string{"CLUSTER", "LINK", "RANK", "REASON", "NODES"}}
	if wide {
		t.Head = append(t.Head, "SINCE", "LAST MOVE", "CAUSE", "THROUGH", "MTU")
	}
	type row struct {
		status.Path
		nodes []string
	}
	var rows []*row
	byKey := map[string]*row{}
	for _, s := range members {
		for _, p := range s.Paths {
			key := p.Cluster + " " + p.Link
			if byKey[key] == nil {
				byKey[key] = &row{Path: p}
				rows = append(rows, byKey[key])
			}
			byKey[key].nodes = append(byKey[key].nodes, s.Node)
			// The gateway of the link has the most accurate report.
			if s.Gateway != "" && s.Gateway == p.LocalGateway {
				byKey[key].Path = p
			}
		}
	}
	for _, r := range rows {
		nodes := "all"
		if len(r.nodes) < len(members) {
			nodes = cellList(r.nodes, 12, wide)
		}
		byKey, cause := "", ""
		if m := r.LastMove; m != nil {
			byKey, cause = formatTime(m.At), m.Cause
			if m.From != "" {
				cause += " (from " + m.From + ")"
			}
		}
		row := []string{r.Cluster, r.Link, r.Rank, r.Reason, nodes}
		if wide {
			row = append(row, formatTime(r.Since), byKey, cause, strings.Join(r.Transit, ","), cli.Number(r.MTU))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// security returns the protection of an IPsec link: the cipher, the SPIs and the number of rekeys.
func security(s *status.Security) string {
	if s == nil {
		return ""
	}
	where := "ESP"
	if s.InUDP {
		where = "ESP in UDP"
	}
	return fmt.Sprintf("%s, %s, SPI %s/%s, rekeyed %d times", where, s.Cipher, s.SPIIn, s.SPIOut, s.Rekeys)
}

// reasonText returns the reason of a link's state, with its IPsec protection, and until when an
// unstable link is held down.
func reasonText(c status.Connection) string {
	if text := security(c.Security); text != "" {
		c.Reason = strings.TrimPrefix(c.Reason+"; "+text, "; ")
	}
	if c.HeldUntil == nil || strings.Contains(c.Reason, "held until") {
		return c.Reason
	}
	return strings.TrimPrefix(c.Reason+", held until "+c.HeldUntil.UTC().Format(time.TimeOnly), ", ")
}

// formatTime formats a time in UTC with a resolution of one second. It omits fractions to keep
// lines short.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func percent(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

// traffic returns received/sent bytes, with three digits each.
func traffic(c status.Connection) string { return short(c.RxBytes) + "/" + short(c.TxBytes) }

func short(bytes int64) string {
	value, unit := float64(bytes), ""
	for _, next := range []string{"k", "M", "G", "T", "P"} {
		if value < 999.5 {
			break
		}
		value, unit = value/1000, next
	}
	if unit != "" && value < 9.95 {
		return fmt.Sprintf("%.1f%s", value, unit)
	}
	return fmt.Sprintf("%.0f%s", value, unit)
}

func formatRTT(rtt *status.RTT) string {
	if rtt == nil {
		return ""
	}
	ms := func(micros int64) float64 { return float64(micros) / 1e3 }
	return fmt.Sprintf("%.2f/%.2f/%.2f/%.2f", ms(rtt.Min), ms(rtt.Avg), ms(rtt.Max), ms(rtt.StdDev))
}
