// Command coredns is CoreDNS with only the plugins that a cluster's own names need, which halves its build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// Plugins run in this order, whatever the order in the Corefile.
	dnsserver.Directives = []string{"health", "ready", "errors", "cache", "loadbalance", "kubernetes"}
	coremain.Run()
}
