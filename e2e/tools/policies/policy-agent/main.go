// Policy-agent enforces NetworkPolicies on one node of the local cluster, for tests.
//
// The kernel puts the first packet of each connection that the node forwards into a queue. This program reads both
// pods, their namespaces and all NetworkPolicies from the API server, and accepts or drops that packet. The evaluation
// of the policies is cyclonus's, the program with which the Kubernetes project has compared network plug-ins. What the
// node itself sends (the kubelet's probes) is not forwarded and always passes, as Kubernetes requires.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os/exec"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	podRange := flag.String("pod-range", "", "the addresses of all pods of the cluster")
	health := flag.String("health", "", "address that answers /healthz once policies are enforced")
	flag.Parse()
	_, pods, err := net.ParseCIDR(*podRange)
	check(err)

	judge, err := newJudge(context.Background(), *kubeconfig, pods)
	check(err)
	queue, err := bindQueue()
	check(err)
	check(forwardIntoQueue())
	go func() {
		check(http.ListenAndServe(*health, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}()
	check(queue.serve(judge.allows))
}

// forwardIntoQueue has the kernel queue the first packet of each forwarded connection. Without this program the queue
// has no reader, and the kernel drops them: a crash opens nothing. The native `queue` statement of nftables is missing
// in some kernels; this target of xtables has the same effect.
//
// DNS passes unseen. A resolver sends two packets at once from one port; the kernel drops one of two that wait in a
// queue as one new connection, and the resolver repeats it after five seconds.
func forwardIntoQueue() error {
	return errors.Join(
		appendRule("-p", "udp", "--dport", "53", "-j", "ACCEPT"),
		appendRule("-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", "0"),
	)
}

// appendRule does nothing where an earlier start of this program has appended the rule.
func appendRule(rule ...string) error {
	if exec.Command("iptables", append([]string{"--wait", "-C", "FORWARD"}, rule...)...).Run() == nil {
		return nil
	}
	return exec.Command("iptables", append([]string{"--wait", "-A", "FORWARD"}, rule...)...).Run()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
