package observe

import (
	"fmt"
	"strings"
	"time"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/nodeagent/status"
)

func connectionTable(title string, members []status.Status, wide bool) cli.Table {
	t := cli.Table{Title: title, Head: []string{"GATEWAY", "REMOTE CLUSTER", "REMOTE GATEWAY", "ENDPOINT", "DRIVER",
		"STATUS", "RTT avg", "CHOSEN", "RTT min/avg/max/stddev ms", "LOSS", "MTU", "BYTES in/out",
		"SINCE", "USE", "WHY", "REACHED AT"}}
	if wide {
		t.Head = append(t.Head, "RANK", "EPOCH", "CHANGES TO")
	}
	for _, s := range members {
		for _, c := range s.Connections {
			row := []string{c.Gateway, c.RemoteCluster, c.RemoteGateway, c.Endpoint, driver(s, c),
				c.Status, agentquery.AverageRTT(c.RTT), cli.YesNo(c.Chosen), formatRTT(c.RTT), percent(c.Loss), cli.Number(c.MTU), traffic(c),
				formatTime(c.Since), use(c), reasonText(c), c.EndpointWhy}
			if wide {
				changes := ""
				if c.Change != nil {
					changes = c.Change.To + ": " + c.Change.Why
				}
				row = append(row, c.Rank, cli.Number(c.Epoch), changes)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// driver names the key epoch too while it is not the only one.
func driver(s status.Status, c status.Connection) string {
	if c.Epoch == 0 || len(s.Epochs) < 2 {
		return c.Driver
	}
	return fmt.Sprintf("%s, epoch %d", c.Driver, c.Epoch)
}

// pathTable has a row for each other cluster. The nodes of a cluster agree; where
// they do not, each of their links has a row and says who uses it.
func pathTable(title string, members []status.Status, wide bool) cli.Table {
	t := cli.Table{Title: title, Head: []string{"CLUSTER", "LINK", "RANK", "SINCE", "WHY", "LAST MOVE", "CAUSE", "NODES"}}
	if wide {
		t.Head = append(t.Head, "THROUGH", "MTU")
	}
	type row struct {
		status.Path
		nodes []string
	}
	var rows []*row
	at := map[string]*row{}
	for _, s := range members {
		for _, p := range s.Paths {
			key := p.Cluster + " " + p.Link
			if at[key] == nil {
				at[key] = &row{Path: p}
				rows = append(rows, at[key])
			}
			at[key].nodes = append(at[key].nodes, s.Node)
			// The gateway of the link knows best.
			if s.Gateway != "" && s.Gateway == p.LocalGateway {
				at[key].Path = p
			}
		}
	}
	for _, r := range rows {
		nodes := "all"
		if len(r.nodes) < len(members) {
			nodes = strings.Join(r.nodes, ",")
		}
		at, cause := "", ""
		if m := r.LastMove; m != nil {
			at, cause = formatTime(m.At), m.Cause
			if m.From != "" {
				cause += " (from " + m.From + ")"
			}
		}
		row := []string{r.Cluster, r.Link, r.Rank, formatTime(r.Since), r.Why, at, cause, nodes}
		if wide {
			row = append(row, strings.Join(r.Transit, ","), cli.Number(r.MTU))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// security says what protects an IPsec link, by which keys, and how often they
// were replaced.
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

func use(c status.Connection) string {
	if c.Chosen {
		return "chosen"
	}
	return "standby"
}

// reasonText says until when a link that fell too often is held back, and what protects it.
func reasonText(c status.Connection) string {
	if text := security(c.Security); text != "" {
		c.Why = strings.TrimPrefix(c.Why+"; "+text, "; ")
	}
	if c.Held == nil || strings.Contains(c.Why, "held until") {
		return c.Why
	}
	return strings.TrimPrefix(c.Why+", held until "+c.Held.UTC().Format(time.TimeOnly), ", ")
}

// formatTime is a time in UTC, to the second; dates long ago matter less than a
// line that is short.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func percent(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

// traffic tells the bytes that came over the link and that were sent, in three digits.
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
