"""The words of the synthetic sentences: one vocabulary for training, another for held-out text.

The two share no name, street, town, mail domain, medicine or template. In a template, a field in capitals is a PII
value, and the field's name is its label; a field in small letters is filler, which must have no label.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """The words and templates of one kind of text: of held-out text if `held_out`, else of training text."""

    held_out: bool
    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    streets: tuple[str, ...]
    towns: tuple[str, ...]
    domains: tuple[str, ...]
    drugs: tuple[str, ...]
    templates: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


TRAINING = Vocabulary(
    held_out=False,
    first_names=_words(
        """Aaron Abigail Adam Adriana Agnes Ahmed Aisha Alan Albert Alejandro Alice Amanda Amir Amy Andrea Andrew
        Angela Anita Anna Anton Arjun Arthur Barbara Beatrice Benjamin Bianca Brandon Brenda Brian Bruno Carla Carlos
        Caroline Catherine Charles Chloe Christine Claire Clara Conrad Cynthia Daniel Daphne David Deborah Dennis
        Diana Diego Dominic Dorothy Douglas Edith Edward Eileen Elena Eli Elizabeth Emily Emma Eric Ernest Esther Ethan
        Eva Farid Fatima Felix Fiona Florence Frances Frank Frederick Gabriel George Gloria Grace Gregory Hannah Harold
        Harriet Hassan Hector Helen Henry Hiroshi Howard Hugo Ibrahim Ines Irene Isabel Ivan Jack Jacob James Janet
        Jasmine Jason Javier Jennifer Jeremy Joan Joel John Jonas Joseph Joyce Juan Judith Julia Justin Karen Karl
        Katherine Keith Kenji Kevin Kofi Laura Lauren Lee Leo Leonard Liam Linda Lisa Lucas Lucy Luis Lydia Magda
        Marcus Margaret Maria Mark Martha Martin Mary Matthew Mei Melissa Michael Miguel Mohammed Monica Nadia Nancy
        Natalie Nathan Nicole Nina Noah Nora Oliver Olivia Omar Oscar Patricia Paul Peter Philip Priya Rachel Ralph
        Ravi Raymond Rebecca Richard Robert Rosa Roy Ruth Ryan Samuel Sandra Sara Scott Sean Simon Sofia Sophie Stella
        Stephen Steven Susan Sven Sylvia Tanya Teresa Thomas Timothy Tomas Ursula Valerie Vera Victor Victoria Vincent
        Virginia Walter Wayne Wendy William Xavier Yusuf Yvonne Zoë José Renée Łukasz Mónica"""
    ),
    last_names=_words(
        """Abbott Acosta Adams Ahmad Allen Alvarez Anderson Andrews Archer Bailey Baker Banerjee Barnes Barrett Bell
        Bennett Berg Bishop Black Blake Boyd Bradley Brooks Brown Bryant Burke Burns Butler Campbell Carlson Carroll
        Carter Castillo Chandler Chapman Chavez Chen Choi Clark Cohen Coleman Collins Cooper Cox Crawford Cruz
        Cunningham Daniels Davidson Davis Dawson Delgado Diaz Dixon Dunn Edwards Elliott Ellis Evans Ferguson
        Fernandez Fields Fischer Fisher Fleming Flores Ford Foster Fox Franklin Freeman Fuller Garcia Gardner Gibson
        Gomez Gonzalez Gordon Graham Grant Graves Gray Greene Griffin Gupta Hall Hamilton Hansen Harper Harris
        Harrison Hart Hayes Henderson Hernandez Hicks Hill Hoffman Holland Holmes Hopkins Horton Howell Hudson Hughes
        Hunt Hussain Ito Jackson Jacobs Jensen Jimenez Johnson Jones Jordan Kaplan Kaur Keller Kelly Kennedy Khan Kim
        King Klein Knight Kowalski Kumar Lambert Larsen Lawson Levy Lewis Lopez Lowe Lynch Marshall Martinez Mason
        Matthews McCarthy McDonald Medina Mendoza Meyer Miller Mills Mitchell Moore Morales Moreno Morgan Morris
        Murphy Murray Myers Nelson Newman Nguyen Nichols Novak Okafor Olsen Ortiz Owens Palmer Park Parker Patel
        Pearson Perez Perry Peterson Phillips Porter Powell Price Quinn Ramirez Ramos Reed Reyes Reynolds Rhodes
        Richardson Rivera Roberts Robinson Rodriguez Rogers Rossi Russell Ryder Sanchez Sanders Sato Schmidt
        Schneider Schultz Shaw Silva Simpson Singh Smith Snyder Sokolov Soto Spencer Stevens Stewart Stone Sullivan
        Suzuki Tanaka Taylor Thompson Torres Tucker Turner Vargas Vega Wagner Walker Wallace Walsh Wang Ward Warren
        Watson Weaver Webb Weber Wells West Wheeler White Williams Wilson Wong Wood Wright Yang Young Zhang Müller
        Nuñez"""
    ),
    streets=_words(
        """Alder Amber Apple Ash Bank Barley Beacon Beech Birch Bluebird Bridge Broad Brook Canal Castle Cedar Chapel
        Cherry Chestnut Church Clay Clover College Copper Court Creek Crescent Dale Deer Depot Eagle East Elm Fern
        Field First Forest Fountain Fourth Gate Glen Grove Harbor Hawthorn Hazel Heather Highland Hillside Hollow
        Holly Ivy Jasper Juniper Lake Laurel Liberty Lilac Lincoln Linden Locust Madison Magnolia Maple Market Meadow
        Mill Monroe Mulberry North Oak Orchard Park Pearl Pine Pleasant Poplar Prospect Quarry Railroad Ridge River
        School Second Spring Spruce Station Summit Sunset Sycamore Third Union Valley Vine Walnut Washington Willow"""
    ),
    towns=_lines(
        """Ashbury
        Bell Harbor
        Brightwater
        Cedar Falls
        Clearbrook
        Coldspring
        Eastfield
        Elmhurst
        Fairview
        Fort Adler
        Glenwood
        Grand Mesa
        Greenville
        Hartwell
        Hazelton
        Kingsport
        Lakeside
        Linwood
        Maple Ridge
        Midland
        Milford
        New Aster
        Northgate
        Oakdale
        Pine Bluff
        Port Mercer
        Redfield
        Riverton
        Rockport
        Salem Heights
        Sheffield
        Silver Creek
        Springdale
        Stonebridge
        Union City
        Warren Hills
        West Harlow
        Westbrook
        Whitfield
        Winslow"""
    ),
    domains=_words(
        """example.com example.org post.example.com mail.example.org inbox.example.com clinic.example.org
        bluemail.example quickpost.example mapleclinic.example northside.example citycare.example lakeview.example
        openbox.example brightnet.example sunrisehealth.example oakgroup.example"""
    ),
    drugs=_words(
        """ibuprofen metformin lisinopril amoxicillin atorvastatin omeprazole sertraline albuterol warfarin
        gabapentin prednisone insulin levothyroxine losartan"""
    ),
    templates=_lines(
        """Patient {FIRSTNAME} {LASTNAME} was admitted on {DATE} with chest pain.
        {FIRSTNAME} {LASTNAME}, born {DATE}, lives at {ADDRESS}.
        Please call {FIRSTNAME} at {PHONE} about the lab results.
        Please reach Mr. {LASTNAME} by phone: {PHONE}.
        Send the discharge summary to {EMAIL} before {DATE}.
        MRN {MRN}: {FIRSTNAME} {LASTNAME}, seen on {DATE}.
        The record {MRN} belongs to Mrs. {LASTNAME}.
        SSN {SSN} was given by the patient at check-in.
        Her social security number is {SSN} and her email is {EMAIL}.
        His SSN is {SSN}; his phone is {PHONE}.
        Name: {FIRSTNAME} {LASTNAME} | DOB: {DATE} | MRN: {MRN}
        Name: {LASTNAME}, {FIRSTNAME}. Social security: {SSN}.
        Dr. {LASTNAME} examined {FIRSTNAME} on {DATE} and prescribed {drug} {dose}.
        Dr. {FIRSTNAME} {LASTNAME} will be in room {room} until noon.
        Home address on file: {ADDRESS}.
        Mail the invoice to {FIRSTNAME} {LASTNAME}, {ADDRESS}.
        The family moved to {ADDRESS} in the summer.
        Contact {EMAIL} or {PHONE} for scheduling.
        We emailed {FIRSTNAME} at {EMAIL} twice this week.
        Follow-up for {LASTNAME} is set for {DATE} in room {room}.
        On {DATE} the nurse gave {FIRSTNAME} {dose} of {drug}.
        {FIRSTNAME} says the pain began on {DATE}.
        {FIRSTNAME} and {FIRSTNAME} both tested negative.
        My name is {FIRSTNAME} {LASTNAME} and my number is {PHONE}.
        Hi, this is {FIRSTNAME}, you can text me at {PHONE}.
        Dear {FIRSTNAME}, your appointment on {DATE} is confirmed.
        Dear Ms. {LASTNAME}, we could not verify the number {SSN}.
        Emergency contact: {FIRSTNAME} {LASTNAME} ({PHONE})
        Insurance form lists {SSN} for {FIRSTNAME} {LASTNAME}.
        Chart {MRN} was updated on {DATE} by {LASTNAME}.
        Medical record number {MRN}, phone {PHONE}, email {EMAIL}.
        The ambulance picked up {FIRSTNAME} {LASTNAME} at {ADDRESS}.
        Deliver the wheelchair to {ADDRESS}, attention {LASTNAME}.
        {LASTNAME} was discharged on {DATE}; {drug} {dose} daily.
        Referral from Dr. {LASTNAME}: patient {FIRSTNAME}, MRN {MRN}.
        Date of birth {DATE}, SSN {SSN}, address {ADDRESS}.
        The caller left {PHONE} and {EMAIL} as contacts.
        Specimen collected {DATE}, label {MRN}.
        Please update the address of {FIRSTNAME} {LASTNAME} to {ADDRESS}.
        Signed by {FIRSTNAME} {LASTNAME} on {DATE}.
        Employee {FIRSTNAME} {LASTNAME}, SSN: {SSN}, start date {DATE}.
        Forward the scan of {MRN} to {EMAIL}.
        Phone: {PHONE}
        Email: {EMAIL}
        Address: {ADDRESS}
        SSN: {SSN}
        MRN: {MRN}
        Date: {DATE}
        {FIRSTNAME} reports no side effects from {drug}.
        {FIRSTNAME} {LASTNAME} paid {money} for the visit on {DATE}.
        Is {FIRSTNAME} {LASTNAME} still living at {ADDRESS}?
        I spoke with {FIRSTNAME}'s mother, {FIRSTNAME} {LASTNAME}, on {DATE}.
        Prescribe {drug} {dose} twice a day with food.
        Blood pressure was {lab} and the pulse was regular.
        The patient in room {room} asked for water.
        The total of {money} is due within {count} days.
        Order {count} boxes of {drug} for the ward.
        Case {count} of {count} was reviewed without remarks.
        Version {count}.{count} of the form replaces the old one.
        The clinic opens at {hour} and closes late.
        Ticket {room}-{count} is closed, no further action.
        Vitals at {hour}: {lab}, temperature normal."""
    ),
)

HELD_OUT = Vocabulary(
    held_out=True,
    first_names=_words(
        """Alma Amelia Astrid Bernard Blanca Calvin Cecilia Cedric Celeste Cora Damian Dina Edgar Elias Elsa Enrique
        Ezra Flora Georgia Gideon Gustav Heidi Hilda Iris Isaac Joanna Jorge Josephine Kamal Leila Lorenzo Louisa Mabel
        Malik Marina Maya Mikhail Miriam Naomi Nikolai Octavia Pablo Penelope Quentin Rafael Ramona Reuben Rosalind
        Rupert Salma Silas Sunita Tariq Tessa Theodore Tobias Viola Wesley Winifred Yara Zachary André Chloë Søren"""
    ),
    last_names=_words(
        """Abrams Aguilar Ashford Baldwin Barlow Becker Bowman Bradshaw Calloway Cardenas Chaudhry Conway Cordova
        Dalton Desai Donovan Drummond Eriksen Farrell Finch Gallagher Goldberg Guerrero Haddad Hathaway Hawkins Higgins
        Holloway Ishikawa Jankowski Kessler Lindgren Lockhart Maldonado Marlowe Mbeki Merriweather Montoya Nakamura
        Norwood Osborne Pacheco Pemberton Petrov Prescott Quintero Ramsey Rasmussen Rutherford Salazar Santiago Sharma
        Sinclair Stafford Tanner Thornton Underwood Valdez Vaughn Whitaker Winters Yamamoto Zimmerman Ibáñez"""
    ),
    streets=_words(
        """Anchor Aspen Bayview Bramble Cannon Cardinal Cobalt Cypress Daisy Falcon Garnet Granite Hemlock Heron
        Ironwood Lantern Larch Marigold Meridian Nutmeg Olive Partridge Pebble Primrose Quail Redwood Saddle Sparrow
        Thistle Timber Tulip Violet Wharf Windmill Yarrow"""
    ),
    towns=_lines(
        """Arden Point
        Briarwood
        Cape Lorne
        Dunmore
        Eagle Pass
        Fernley
        Gold Basin
        Harrow Bay
        Kirkland
        Larkspur
        Mount Alden
        Newhaven
        Otter Lake
        Penrose
        Saint Bryce
        Thornbury
        Upper Tarn
        Wexley"""
    ),
    domains=_words(
        """example.net letters.example.net harborhealth.example greenfield.example swiftletter.example
        pinemail.example wardstaff.example eastclinic.example"""
    ),
    drugs=_words("naproxen simvastatin furosemide cetirizine tramadol clopidogrel"),
    templates=_lines(
        """According to the intake form, {FIRSTNAME} {LASTNAME} has lived at {ADDRESS} since {DATE}.
        {LASTNAME}, {FIRSTNAME}: chart {MRN}, last visit {DATE}.
        The daughter, {FIRSTNAME}, can be reached on {PHONE} after work.
        A copy went to {EMAIL} and a letter to {ADDRESS}.
        Verify identity: social {SSN}, born on {DATE}.
        Tax form for {FIRSTNAME} {LASTNAME} shows {SSN} as the social security number.
        📞 {PHONE} is the new number of Mr. {LASTNAME}.
        Nurse {LASTNAME} noted on {DATE} that {FIRSTNAME} refused {drug}.
        Transfer of {FIRSTNAME} {LASTNAME} (MRN {MRN}) took place on {DATE}.
        Reply to {EMAIL}, not to the old mailbox of {FIRSTNAME}.
        We could not find {MRN} in the archive; Dr. {LASTNAME} will ask again.
        Applicant: {FIRSTNAME} {LASTNAME}; SSN {SSN}; mobile {PHONE}; mail {EMAIL}
        Ship {drug} to {ADDRESS} no later than {DATE}.
        Thanks, {FIRSTNAME} {LASTNAME}, {PHONE}
        Visitor {FIRSTNAME} {LASTNAME} signed in at {hour}, badge {room}.
        After the fall on {DATE}, {FIRSTNAME} was taken home to {ADDRESS}.
        Their records, {MRN} and {MRN}, were merged on {DATE}.
        If {FIRSTNAME} does not answer {PHONE}, write to {EMAIL}.
        Guarantor {LASTNAME} gave {SSN} over the phone on {DATE}.
        Both {FIRSTNAME} {LASTNAME} and {FIRSTNAME} {LASTNAME} share {ADDRESS}.
        {FIRSTNAME} was switched from {drug} to {drug} {dose} on {DATE}.
        Lab sample {MRN} arrived at {hour} with the wrong name, {LASTNAME}.
        Old payroll entry: {LASTNAME} / {SSN} / {EMAIL}
        Did {FIRSTNAME} {LASTNAME} ring from {PHONE} yesterday?
        The pharmacy counted {count} packs of {drug} at {hour}.
        Reading {lab} was repeated after {count} minutes.
        A refund of {money} was approved for bed {room}."""
    ),
)
