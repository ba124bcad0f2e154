# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # Whether connections are verified as Ruby's openssl does. A library that connects to an address and has the
      # certificate checked for a name (ssrf_filter before 1.2) replaces one of these methods: then a connection says
      # nothing about the next session, whose name may be another one.
      class Verification
        METHODS = {
          SSLSocket: %i[initialize connect connect_nonblock post_connection_check hostname= session= peer_cert
            peer_cert_chain verify_result context],
          SSLContext: %i[initialize set_params setup verify_mode= verify_hostname= verify_callback= verify_depth=
            cert_store= ca_file= ca_path= cert= key= extra_chain_cert= min_version= max_version= ssl_version= ciphers=]
        }.freeze
        FUNCTIONS = %i[verify_certificate_identity verify_hostname verify_wildcard].freeze
        STORE = %i[add_cert add_file add_path set_default_paths].freeze
        private_constant :METHODS, :FUNCTIONS, :STORE

        def initialize
          ssl = OpenSSL::SSL
          [ssl, ssl::SSLSocket, ssl::SSLContext, OpenSSL::X509::Store].each do |place|
            PatchDetector::Watch.add(place) { @known = {} }
          end
          @known = {}
        end

        # A thread that judges while a method changes writes its result into the old table, which nobody reads any more.
        def unpatched?
          known = @known
          known.fetch(:unpatched) { known[:unpatched] = judge }
        end

        private

        def judge
          METHODS.all? { |name, methods| klass?(OpenSSL::SSL.const_get(name), methods) } && store? &&
            FUNCTIONS.all? { |name| from_openssl?(OpenSSL::SSL.method(name), [OpenSSL::SSL.singleton_class]) }
        end

        def klass?(klass, methods)
          klass.method(:new).owner.equal?(Class) && methods.all? do |name|
            next true unless klass.method_defined?(name) || klass.private_method_defined?(name) # older than the method

            from_openssl?(klass.instance_method(name), [klass])
          end
        end

        # {Trust} stands before Ruby's own methods, and nothing between.
        def store?
          store = OpenSSL::X509::Store
          store.method(:new).owner.equal?(Class) && STORE.all? do |name|
            method = store.instance_method(name)
            method.owner.equal?(Trust::Record) && from_openssl?(method.super_method, [store])
          end
        end

        def from_openssl?(method, owners) = PatchDetector.from?(method, owners, folder)

        def folder = @folder ||= File.join(File.dirname(Object.const_source_location("OpenSSL::Buffering").first), "")
      end
      private_constant :Verification
    end
  end
end
