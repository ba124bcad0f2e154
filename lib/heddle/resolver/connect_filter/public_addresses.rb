# frozen_string_literal: true

require "ipaddr"

module Heddle
  module ConnectFilter
    # The filter {PUBLIC}.
    #
    # Its tables are those of the registries of IANA as of 2025-10-09:
    # - IPv4 Special-Purpose Address Registry (iana-ipv4-special-registry)
    # - IPv6 Special-Purpose Address Registry (iana-ipv6-special-registry)
    # Of their rows the longest prefix decides, by its column "Globally Reachable": anything but True refuses. Addresses
    # without a row are allowed, except for multicast (IPv4 Multicast Address Space Registry) and IPv6 outside of
    # 2000::/3, the only global unicast space in use (Internet Protocol Version 6 Address Space).
    #
    # @api private
    class PublicAddresses
      IPV4 = {
        "0.0.0.0/8" => false, # this network
        "10.0.0.0/8" => false, # private use
        "100.64.0.0/10" => false, # shared address space
        "127.0.0.0/8" => false, # loopback
        "169.254.0.0/16" => false, # link-local
        "172.16.0.0/12" => false, # private use
        "192.0.0.0/24" => false, # protocol assignments
        "192.0.0.9/32" => true, # Port Control Protocol anycast
        "192.0.0.10/32" => true, # TURN anycast
        "192.0.2.0/24" => false, # documentation
        "192.31.196.0/24" => true, # AS112
        "192.52.193.0/24" => true, # AMT
        "192.88.99.0/24" => false, # 6to4 relay anycast, deprecated: no value in the column
        "192.168.0.0/16" => false, # private use
        "192.175.48.0/24" => true, # AS112
        "198.18.0.0/15" => false, # benchmarking
        "198.51.100.0/24" => false, # documentation
        "203.0.113.0/24" => false, # documentation
        "224.0.0.0/4" => false, # multicast
        "240.0.0.0/4" => false, # reserved, and limited broadcast
        "168.63.129.16/32" => false # Azure's own services for a machine, in public space
      }.freeze

      IPV6 = {
        "::/0" => false, # outside of 2000::/3
        "2000::/3" => true,
        "64:ff9b::/96" => false, # NAT64: globally reachable, but stands for an IPv4 address that may be private
        "64:ff9b:1::/48" => false, # NAT64 for local use
        "2001::/23" => false, # protocol assignments, with Teredo and benchmarking
        "2001:1::1/128" => true, # Port Control Protocol anycast
        "2001:1::2/128" => true, # TURN anycast
        "2001:1::3/128" => true, # DNS-SD anycast
        "2001:3::/32" => true, # AMT
        "2001:4:112::/48" => true, # AS112
        "2001:20::/28" => true, # ORCHIDv2
        "2001:30::/28" => true, # drone remote identification
        "2001:db8::/32" => false, # documentation
        "2002::/16" => false, # 6to4: stands for an IPv4 address that may be private
        "2620:4f:8000::/48" => true, # AS112
        "3fff::/20" => false # documentation
      }.freeze
      private_constant :IPV4, :IPV6

      def initialize
        @ipv4 = rows(IPV4)
        @ipv6 = rows(IPV6)
      end

      # @param address [Addrinfo]
      # @return [Boolean] whether it is an address that the whole Internet can reach
      def call(address, _host = nil)
        bytes = address.to_sockaddr
        if address.ipv4?
          reachable?(@ipv4, bytes[4, 4].unpack1("N"))
        elsif address.ipv6?
          return false unless bytes[24, 4].unpack1("L").zero? # a scope

          high, low = bytes[8, 16].unpack("Q>2")
          reachable?(@ipv6, (high << 64) | low)
        else
          false
        end
      end

      # @return [String]
      def inspect = "Heddle::ConnectFilter::PUBLIC"

      private

      def reachable?(rows, number)
        row = rows.find { |first, last, _| number.between?(first, last) }
        row.nil? || row.last
      end

      # The longest prefix first.
      # @return [Array<(Integer, Integer, Boolean)>] first and last address, and whether it is reachable
      def rows(table)
        table.sort_by { |prefix, _| -prefix[/\d+\z/].to_i }.map do |prefix, reachable|
          range = IPAddr.new(prefix).to_range
          [range.first.to_i, range.last.to_i, reachable]
        end
      end
    end
    private_constant :PublicAddresses
  end
end
