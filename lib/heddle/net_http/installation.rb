# frozen_string_literal: true

require "stringio"
require_relative "aliases"
require_relative "connecting"
require_relative "making"
require_relative "pristine"
require_relative "starting"

module Heddle
  module NetHTTP
    # What is put in place for one Net::HTTP, and taken away again.
    #
    # The class that `connect` means by BufferedIO is shadowed by a constant of Net::HTTP itself: no method is patched for it, and
    # Net::SMTP and the others keep theirs.
    #
    # @api private
    class Installation
      # The class whose `connect` makes the sockets: WebMock and others put subclasses in Net::HTTP's place, and httplog makes it public.
      #
      # @return [Class, nil]
      def self.owner(klass)
        return unless klass.is_a?(Class)

        klass.ancestors.grep(Class).reverse.find do |ancestor|
          [ancestor.private_method_defined?(:connect, false), ancestor.method_defined?(:connect, false)].any? && ancestor.name&.end_with?("::HTTP")
        end
      end

      # @return [Array<Library>]
      attr_reader :libraries

      def initialize(http)
        @http = http
        @space = Object.const_get(http.name.delete_suffix("::HTTP"))
        @pristine = Pristine.new(http, @space)
        @libraries = []
      end

      def enabled?
        !@shadow.nil?
      end

      def enable(segment)
        unless @shadow
          @previous = @http.const_get(:BufferedIO, false) if @http.const_defined?(:BufferedIO, false)
          @shadow, @library = @all ||= shadow
          replace(@shadow)
        end
        @library.set(:segment, segment)
        @library.set(:enabled, true)
        prepend_fronts
      end

      def disable
        return unless @shadow

        @library.set(:enabled, false)
        replace(@previous) if @http.const_get(:BufferedIO, false) == @shadow
        @shadow = @previous = nil
        empty_fronts
      end

      # Of one object alone: its sockets are exchanged as soon as they are connected.
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
          socket.instance_variables.each { |name| other.instance_variable_set(name, socket.instance_variable_get(name)) }
        end
      end

      private

      def replace(constant)
        @http.send(:remove_const, :BufferedIO) if @http.const_defined?(:BufferedIO, false)
        @http.const_set(:BufferedIO, constant) if constant
      end

      def shadow(parent = @previous || @space::BufferedIO)
        klass = Class.new(parent)
        Library.define_buffered(klass)
        library = Library.new
        library.set(:shadow, klass)
        describe(library)
        @libraries << library
        [klass, library]
      end

      def single
        @single ||= shadow(@space::BufferedIO).first.tap do
          @libraries.last.set(:segment, 1 << 20)
          @libraries.last.set(:enabled, true)
          prepend_fronts
        end
      end

      # Modules in front of the classes whose work on heads and bodies is done in C. They hand everything on that does not come
      # from a socket of ours, and stay, empty, when they are not needed any more.
      def prepend_fronts
        @fronts ||= {
          start: @http.singleton_class, head: @space::HTTPResponse.singleton_class, body: @space::HTTPResponse, request: @space::HTTPGenericRequest, transport: @http
        }.to_h do |subject, place|
          front = Module.new
          front.instance_variable_set(:@heddle_net_http, true)
          place.prepend(front)
          [subject, front]
        end
        fill_fronts unless @fronts[:start].method_defined?(:start)
        @aliases ||= Aliases.new({@http.singleton_class => @fronts[:start], @space::HTTPResponse.singleton_class => @fronts[:head],
                                  @space::HTTPResponse => @fronts[:body], @space::HTTPGenericRequest => @fronts[:request], @http => @fronts[:transport]},
          -> { @shadow || @single })
        @aliases.look_at_all
        @pristine.watch(requests + responses) do |place, name|
          @aliases.look(place, name) if name
          judge
        end
        judge
      end

      def fill_fronts
        @fronts.each { |subject, front| Library.public_send(:"define_#{subject}", front) unless subject == :start }
        Starting.define(@fronts[:start])
        Connecting.define(@fronts[:transport], @http, @space)
        Making.define(@fronts[:transport], @http) if @pristine.groups[:making]
      end

      # All but initialize, which Ruby warns of: it looks by itself whether it is wanted.
      def empty_fronts
        return if @single

        @fronts.each_value do |front|
          names = front.instance_methods(false) | front.private_instance_methods(false)
          (names - [:initialize]).each { |name| front.send(:remove_method, name) }
        end
      end

      def describe(library)
        library.set(:http, @http)
        library.set(:read_timeout, @space::ReadTimeout)
        library.set(:write_timeout, @space::WriteTimeout)
        library.set(:open_timeout, @space::OpenTimeout)
        library.set(:bad_response, @space::HTTPBadResponse)
        library.set(:read_limit_exceeded, @space.const_defined?(:ReadLimitExceeded) ? @space::ReadLimitExceeded : nil)
        describe_responses(library)
        describe_requests(library)
      end

      # What a new response looks like differs by version, and so does what ends a head: both are tried.
      def describe_responses(library)
        response = @space::HTTPResponse
        library.set(:response, response)
        library.set(:code_to_object, response::CODE_TO_OBJ)
        library.set(:code_class_to_object, response::CODE_CLASS_TO_OBJ)
        library.set(:unknown_response, @space::HTTPUnknownResponse)
        library.set(:response_template, variables(response.new("1.1", "200", "OK")))
        library.set(:blank_ends, !fields("a: b\n \nc: d\n\n").key?("c"))
        library.set(:folds_skip_empty, fields("a: b\n \0\n\n")["a"] == ["b"])
      end

      def describe_requests(library)
        request = @space::HTTPGenericRequest.new("GET", false, true, "/")
        library.set(:request, @space::HTTPGenericRequest)
        library.set(:request_template, variables(request))
        library.set(:request_fields, request.to_hash.flat_map { |name, values| [name, values.first] })
        library.set(:inflates, request.decode_content)
      end

      # The library's classes of requests and of responses.
      def requests
        generic = @space::HTTPGenericRequest
        [generic, @space::HTTPRequest, *@space::HTTPRequest.subclasses.select { |klass| klass.name&.start_with?("#{@http.name}::") }]
      end

      def responses
        response = @space::HTTPResponse
        [response, *response::CODE_TO_OBJ.values, *response::CODE_CLASS_TO_OBJ.values, @space::HTTPUnknownResponse].uniq
      end

      # Those that only say what they are: others may have overridden what is done in C. What makes a request is asked in any case.
      def known(classes, asked: [])
        common = classes.first.ancestors
        as_shipped = classes.select do |klass|
          (klass.ancestors - common).all? { |mod| mod.instance_methods(false).empty? && (mod.private_instance_methods(false) - asked).empty? }
        end
        as_shipped.to_h { |klass| [klass, true] }
      end

      def variables(object)
        object.instance_variables.flat_map { |name| [name, object.instance_variable_get(name)] }
      end

      # The fields that the library reads out of that text.
      def fields(text)
        socket = @space::BufferedIO.new(StringIO.new("HTTP/1.1 200 OK\n#{text}"))
        @space::HTTPResponse.read_new(socket).to_hash
      end

      # Tells what may be done fast.
      def judge
        {known_requests: known(requests, asked: [:initialize]), known_responses: known(responses)}.each do |name, classes|
          @libraries.each { |library| library.set(name, classes) }
        end
        @pristine.groups.each do |name, as_shipped|
          @libraries.each { |library| library.set(:"#{name}_pristine", as_shipped) }
        end
      end
    end
    private_constant :Installation, :Library
  end
end
