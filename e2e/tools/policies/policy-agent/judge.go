package main

import (
	"context"
	"log"
	"net"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const byAddress = "address"

var protocols = map[int]corev1.Protocol{
	unix.IPPROTO_TCP: corev1.ProtocolTCP, unix.IPPROTO_UDP: corev1.ProtocolUDP, unix.IPPROTO_SCTP: corev1.ProtocolSCTP,
}

// judge decides by the cluster's pods, namespaces and policies of this moment.
type judge struct {
	podRange   *net.IPNet
	pods       cache.Indexer
	namespaces corelisters.NamespaceLister
	policies   networkinglisters.NetworkPolicyLister
}

func newJudge(ctx context.Context, kubeconfig string, podRange *net.IPNet) (*judge, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	if err := pods.AddIndexers(cache.Indexers{byAddress: addresses}); err != nil {
		return nil, err
	}
	found := &judge{
		podRange:   podRange,
		pods:       pods.GetIndexer(),
		namespaces: factory.Core().V1().Namespaces().Lister(),
		policies:   factory.Networking().V1().NetworkPolicies().Lister(),
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return found, nil
}

// addresses leaves out pods whose address is not theirs alone, or no longer theirs.
func addresses(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, nil
	}
	var found []string
	for _, address := range pod.Status.PodIPs {
		found = append(found, address.IP)
	}
	return found, nil
}

// allows drops what involves a pod whose address is not known yet: its sender repeats the packet a second later.
func (j *judge) allows(p packet) bool {
	source, from, knownSource := j.peer(p.source)
	destination, to, knownDestination := j.peer(p.destination)
	protocol, hasPorts := protocols[p.protocol]
	allowed := knownSource && knownDestination
	if allowed && hasPorts {
		allowed = j.allowsPort(source, destination, to, p.port, protocol)
	}
	if !allowed {
		log.Printf("dropped: %s %s -> %s %s port %d %s", p.source, name(from), p.destination, name(to), p.port, protocol)
	}
	return allowed
}

// allowsPort tries each name that the destination has given the port, and none.
func (j *judge) allowsPort(
	source, destination *matcher.TrafficPeer, to *corev1.Pod, port int, protocol corev1.Protocol,
) bool {
	policies, err := j.policies.List(labels.Everything())
	if err != nil || !supported(policies) {
		return false
	}
	policy := matcher.BuildNetworkPolicies(false, policies)
	for _, portName := range append(portNames(to, port, protocol), "") {
		traffic := matcher.Traffic{
			Source: source, Destination: destination,
			ResolvedPort: port, ResolvedPortName: portName, Protocol: protocol,
		}
		if policy.IsTrafficAllowed(&traffic).IsAllowed() {
			return true
		}
	}
	return false
}

// peer is a pod with its labels, or an address outside of the cluster; false for a pod's address without its pod.
func (j *judge) peer(address net.IP) (*matcher.TrafficPeer, *corev1.Pod, bool) {
	found := &matcher.TrafficPeer{IP: address.String()}
	objects, err := j.pods.ByIndex(byAddress, found.IP)
	if err != nil || len(objects) != 1 {
		return found, nil, !j.podRange.Contains(address)
	}
	pod, ok := objects[0].(*corev1.Pod)
	if !ok {
		return found, nil, false
	}
	namespace, err := j.namespaces.Get(pod.Namespace)
	if err != nil {
		return found, pod, false
	}
	found.Internal = &matcher.InternalPeer{
		PodLabels: pod.Labels, NamespaceLabels: namespace.Labels, Namespace: pod.Namespace,
	}
	return found, pod, true
}

func portNames(pod *corev1.Pod, port int, protocol corev1.Protocol) []string {
	if pod == nil {
		return nil
	}
	var found []string
	for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		for _, declared := range container.Ports {
			if int(declared.ContainerPort) == port && declared.Protocol == protocol && declared.Name != "" {
				found = append(found, declared.Name)
			}
		}
	}
	return found
}

// supported refuses the operator NotIn: cyclonus 0.5.6 has it exclude pods without the label, Kubernetes includes them.
func supported(policies []*networkingv1.NetworkPolicy) bool {
	for _, policy := range policies {
		for _, selector := range selectors(policy) {
			for _, expression := range selector.MatchExpressions {
				if expression.Operator == metav1.LabelSelectorOpNotIn {
					log.Printf("NotIn in %s/%s is not supported: everything is dropped", policy.Namespace, policy.Name)
					return false
				}
			}
		}
	}
	return true
}

func selectors(policy *networkingv1.NetworkPolicy) []metav1.LabelSelector {
	found := []metav1.LabelSelector{policy.Spec.PodSelector}
	var peers []networkingv1.NetworkPolicyPeer
	for _, rule := range policy.Spec.Ingress {
		peers = append(peers, rule.From...)
	}
	for _, rule := range policy.Spec.Egress {
		peers = append(peers, rule.To...)
	}
	for _, peer := range peers {
		for _, selector := range []*metav1.LabelSelector{peer.PodSelector, peer.NamespaceSelector} {
			if selector != nil {
				found = append(found, *selector)
			}
		}
	}
	return found
}

func name(pod *corev1.Pod) string {
	if pod == nil {
		return "(no pod)"
	}
	return pod.Namespace + "/" + pod.Name
}
