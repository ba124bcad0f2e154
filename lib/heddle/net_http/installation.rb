# frozen_string_literal: true

require_relative "connect"
require_relative "description"
require_relative "keep_alive"
require_relative "initializer"
require_relative "patch_detector"
require_relative "method_replacement"
require_relative "start"
require_relative "transport_request"

module Heddle
  module NetHTTP
    # The acceleration of one Net::HTTP: Ruby's own, or the copy that RubyGems carries.
    #
    # The library's `connect` makes a `BufferedIO`. Ruby finds a constant of that name on Net::HTTP itself before
    # Net::BufferedIO, so that each connection gets the subclass whose methods are in C. That replaces no method, and
    # Net::SMTP and Net::FTP keep Ruby's class. Methods of Net::HTTP, its requests and its responses are replaced by
    # {MethodReplacement}.
    #
    # @api private
    class Installation
      # The class that defines `connect`: WebMock puts a subclass in Net::HTTP's place, and httplog makes `connect`
      # public.
      #
      # @return [Class, nil]
      def self.owner(klass)
        return unless klass.is_a?(Class)

        klass.ancestors.grep(Class).reverse.find do |ancestor|
          next unless ancestor.name&.end_with?("::HTTP")

          ancestor.private_method_defined?(:connect, false) || ancestor.method_defined?(:connect, false)
        end
      end

      # One library for all connections, and one for those of {Heddle::NetHTTP.for}.
      #
      # @return [Array<Library>]
      attr_reader :libraries

      def initialize(http)
        @http = http
        @space = Object.const_get(http.name.delete_suffix("::HTTP"))
        @patches = PatchDetector.new(http, @space)
        @description = Description.new(http, @space)
        @libraries = []
      end

      def enabled? = !!@enabled

      def enable(segment)
        @replacement, @library = new_replacement unless @replacement
        replace_methods
        # A class that a program has put there stays, and so does a replacement that WebMock has kept.
        @http.const_set(:BufferedIO, @replacement) unless @http.const_defined?(:BufferedIO, false)
        @enabled = true
        @library.set(:segment, segment)
        @library.set(:enabled, true)
      end

      def disable
        return unless @enabled

        @enabled = false
        @library.set(:enabled, false)
        remove_replacement
      end

      # Accelerates one object: exchanges its sockets as soon as they are connected.
      def adopt(http)
        klass = single
        http.singleton_class.define_method(:on_connect) do
          @socket = Installation.exchange(@socket, klass) if @socket
          super()
        end
        http.singleton_class.send(:private, :on_connect)
        socket = http.instance_variable_get(:@socket)
        http.instance_variable_set(:@socket, Installation.exchange(socket, klass)) if socket
      end

      # @return [Net::BufferedIO] the same socket with the same state, as one of that class
      def self.exchange(socket, klass)
        return socket if !klass.superclass.equal?(socket.class) || socket.singleton_class.instance_methods(false).any?

        klass.allocate.tap do |other|
          socket.instance_variables.each do |name|
            other.instance_variable_set(name, socket.instance_variable_get(name))
          end
        end
      end

      private

      def remove_replacement
        there = @http.const_defined?(:BufferedIO, false) && @http.const_get(:BufferedIO, false)
        @http.send(:remove_const, :BufferedIO) if there.equal?(@replacement)
      end

      def new_replacement
        klass = Class.new(@space::BufferedIO)
        Library.define(:buffered, klass)
        library = Library.new
        library.set(:buffered, klass)
        @description.give(library)
        @libraries << library
        [klass, library]
      end

      def single
        @single ||= new_replacement.then do |klass, library|
          library.set(:enabled, true)
          replace_methods
          klass
        end
      end

      def replace_methods
        return judge if @replaced

        Connect.spaces[@http] = @space
        ours.each { |place, modules| modules.each { |mod| MethodReplacement.replace(place, mod) } }
        KeepAlive.add_to(@http)
        @patches.watch(@description.requests + @description.responses) { judge }
        @replaced = true
        judge
      end

      def ours
        response = @space::HTTPResponse
        initializer = Initializer.methods_for(@http) if @patches.groups[:initializer]
        {
          response.singleton_class => [in_c(:head), KeepAlive::Reading],
          response => [in_c(:body)],
          @space::HTTPGenericRequest => [in_c(:request)],
          @http => [in_c(:transport), TransportRequest, Connect::Methods, KeepAlive::Methods, *initializer],
          @http.singleton_class => [Start::Methods]
        }
      end

      def in_c(subject) = Module.new { Library.define(subject, self) }

      # Tells the C code which groups of methods are unpatched, and which classes have no methods of their own. When
      # another thread changes a method meanwhile, what was found here may be older than what that thread has told.
      def judge
        KeepAlive.clear_overrides
        @change = Object.new
        loop do
          change = @change
          tell(unpatched: @patches.groups, known_requests: @description.known_requests,
            known_responses: @description.known_responses)
          break if change.equal?(@change)
        end
      rescue Exception # standard:disable Lint/RescueException
        # It is not known which methods have changed: the library itself does all work until the next change.
        tell(unpatched: {})
        raise
      end

      def tell(values) = @libraries.each { |library| values.each { |name, value| library.set(name, value) } }
    end
    private_constant :Installation, :Library
  end
end
