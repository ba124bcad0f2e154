# frozen_string_literal: true

require "test_helper"
require "heddle"
require "ipaddr"

runs_on rubies: :ends, backends: :one

# Heddle::ConnectFilter::PUBLIC against the rows of the registries, and against IPAddr at random.
class PublicAddressesTest < Minitest::Test
  PUBLIC = Heddle::ConnectFilter::PUBLIC

  # Each row of IANA's registries iana-ipv4-special-registry and iana-ipv6-special-registry of 2025-10-09, with its
  # column "Globally Reachable"; nil where that has no value, or N/A.
  REGISTRIES = {
    "0.0.0.0/8" => false, "0.0.0.0/32" => false, "10.0.0.0/8" => false, "100.64.0.0/10" => false,
    "127.0.0.0/8" => false, "169.254.0.0/16" => false, "172.16.0.0/12" => false, "192.0.0.0/24" => false,
    "192.0.0.0/29" => false, "192.0.0.8/32" => false, "192.0.0.9/32" => true, "192.0.0.10/32" => true,
    "192.0.0.170/32" => false, "192.0.0.171/32" => false, "192.0.2.0/24" => false, "192.31.196.0/24" => true,
    "192.52.193.0/24" => true, "192.88.99.0/24" => nil, "192.88.99.2/32" => false, "192.168.0.0/16" => false,
    "192.175.48.0/24" => true, "198.18.0.0/15" => false, "198.51.100.0/24" => false, "203.0.113.0/24" => false,
    "240.0.0.0/4" => false, "255.255.255.255/32" => false,
    "::1/128" => false, "::/128" => false, "::ffff:0:0/96" => false, "64:ff9b::/96" => true, "64:ff9b:1::/48" => false,
    "100::/64" => false, "100:0:0:1::/64" => false, "2001::/23" => false, "2001::/32" => nil, "2001:1::1/128" => true,
    "2001:1::2/128" => true, "2001:1::3/128" => true, "2001:2::/48" => false, "2001:3::/32" => true,
    "2001:4:112::/48" => true, "2001:10::/28" => nil, "2001:20::/28" => true, "2001:30::/28" => true,
    "2001:db8::/32" => false, "2002::/16" => nil, "2620:4f:8000::/48" => true, "3fff::/20" => false,
    "5f00::/16" => false, "fc00::/7" => false, "fe80::/10" => false
  }.freeze
  # What else is refused: NAT64, of which the registry says True; multicast; unicast that IANA has not allocated; a
  # service of Azure.
  REFUSED_BESIDES = %w[64:ff9b::/96 224.0.0.0/4 ff00::/8 ::/3 4000::/2 8000::/1 168.63.129.16/32].freeze

  RULES = REGISTRIES.merge(REFUSED_BESIDES.to_h { |prefix| [prefix, false] })
    .map { |prefix, reachable| [IPAddr.new(prefix), prefix[/\d+\z/].to_i, reachable] }
    .sort_by { |_, length, _| -length }.freeze

  # By IPAddr: the longest prefix decides.
  def expected?(ip)
    _, _, reachable = RULES.find { |range, _, _| range.family == ip.family && range.include?(ip) }
    reachable.nil? ? RULES.none? { |range, _, _| range.family == ip.family && range.include?(ip) } : reachable
  end

  def test_first_and_last_address_of_each_row_and_their_neighbours
    checked = 0
    RULES.each do |range, _, _|
      range = range.to_range
      [range.first, range.last].each do |edge|
        (-1..1).each do |offset|
          number = edge.to_i + offset
          next unless number.between?(0, edge.ipv4? ? 2**32 - 1 : 2**128 - 1)

          ip = IPAddr.new(number, edge.family)
          assert_equal expected?(ip), allowed?(ip.to_s), ip.to_s
          checked += 1
        end
      end
    end
    assert_operator checked, :>, 250
  end

  def test_addresses_at_random
    seed = Integer(ENV.fetch("SEED", rand(1 << 16)))
    random = Random.new(seed)
    rounds = ENV["HEDDLE_STRESS"] ? Float(ENV["HEDDLE_STRESS"]) * 1_500 : 1_000
    answers = Array.new(rounds.to_i) do
      ip = random.rand(2).zero? ? IPAddr.new(random.rand(2**32), Socket::AF_INET) : random_ipv6(random)
      assert_equal expected?(ip), allowed?(ip.to_s), "#{ip}, seed #{seed}"
      expected?(ip)
    end
    assert_equal [false, true], answers.uniq.sort_by(&:to_s)
  end

  def test_services_for_metadata
    %w[169.254.169.254 169.254.170.2 169.254.0.23 100.100.100.200 192.0.0.192 168.63.129.16 fd00:ec2::254 fd00:ec2::23
      fd20:ce::254 fe80::a9fe:a9fe ::ffff:169.254.169.254 ::169.254.169.254 64:ff9b::a9fe:a9fe 64:ff9b:1::a9fe:a9fe
      2002:a9fe:a9fe::1 2001:0:a9fe:a9fe::1].each { |address| refute allowed?(address), address }
  end

  def test_public_addresses
    %w[1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.215.14 172.15.255.255 172.32.0.0 223.255.255.255 2606:4700::1111
      2a00:1450:4001::200e 2001:4860:4860::8888 2001:200::1 2003::1 3ffe::1].each do |address|
      assert allowed?(address), address
    end
  end

  def test_scopes_and_other_families
    scoped = Socket.sockaddr_in(80, "2606:4700::1111")
    assert PUBLIC.call(Addrinfo.new(scoped), "scoped")
    scoped[24, 4] = [1].pack("L")
    refute PUBLIC.call(Addrinfo.new(scoped), "scoped")
    refute PUBLIC.call(Addrinfo.unix("/tmp/socket"), "/tmp/socket")
    refute PUBLIC.call(Addrinfo.new(["\0" * 16].pack("a16")), "") # AF_UNSPEC
  end

  def test_is_shareable
    assert Ractor.shareable?(PUBLIC)
    assert_equal "Heddle::ConnectFilter::PUBLIC", PUBLIC.inspect
  end

  private

  def allowed?(address) = PUBLIC.call(Addrinfo.tcp(address, 80), address)

  # Half of them near a row.
  def random_ipv6(random)
    return IPAddr.new((1 << 125) | random.rand(2**125), Socket::AF_INET6) if random.rand(2).zero?

    range, length, = RULES.select { |rule, _, _| rule.ipv6? }.sample(random: random)
    IPAddr.new(range.to_i ^ random.rand(1 << (132 - length).clamp(1, 128)), Socket::AF_INET6)
  end
end
