# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require "tmpdir"
require_relative "server_process"

module Heddle
  module Lab
    # A running TLS proxy in front of the load server: it passes the client's bytes on without TLS, and the server's
    # bytes back over TLS. It makes its certificate when it starts; clients verify it by {#ca_file}.
    class TLSServer < ServerProcess
      MAIN = File.expand_path("tls_server_main.rb", __dir__)
      private_constant :MAIN

      # @return [String] path of the certificate, for clients to trust
      attr_reader :ca_file

      # @param upstream [ServerProcess] the server behind the proxy
      # @param bind [String] IPv4 address
      # @param core [Integer, nil] the core to pin it to
      def initialize(upstream, bind: "127.0.0.1", core: nil)
        @directory = Dir.mktmpdir("heddle-tls")
        @ca_file = File.join(@directory, "ca.pem")
        launch("TLS server", ["#{upstream.host}:#{upstream.port}", @ca_file], bind: bind,
          port: 0, core: core, input: true,
          program: [RbConfig.ruby, "--disable=gems,did_you_mean,error_highlight", MAIN])
      rescue Error
        FileUtils.rm_rf(@directory)
        raise
      end

      # @see ServerProcess#stop
      def stop
        super
      ensure
        FileUtils.rm_rf(@directory)
      end
    end
  end
end
